//! Carrying the commands out.

use std::collections::BTreeSet;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use crossdock_exnode::{ExNode, FileKey};
use crossdock_ibp::Reliability;
use serde_json::json;

use super::args::{
    Augment, Copy, Download, How, Kind, Lease, Modify, Move, Refresh, Stat, Tool, Trim, Upload,
    Where,
};
use super::{block_on, forecast, output};
use crate::document::beside;
use crate::refresh::End;
use crate::upload::{Input, StepKind};
use crate::{
    Depots, Knowledge, Observer, Place, Tuning, augment, download, modify, quantity, read_exnode,
    refresh, stat, trim, upload, write_exnode,
};

impl Tool {
    /// Carries it out.
    ///
    /// # Errors
    /// What could not be done, and why.
    pub fn carry_out(self) -> Result<()> {
        match self {
            Self::Upload(args) => block_on(upload_file(&args)),
            Self::Download(args) => block_on(download_file(&args)),
            Self::Stat(args) => block_on(show(&args)),
            Self::Refresh(args) => block_on(refresh_file(&args)),
            Self::Augment(args) => block_on(augment_file(&args)),
            Self::Trim(args) => block_on(trim_file(&args)),
            Self::Modify(args) => modify_file(&args),
            Self::Copy(args) => block_on(copy_file(&args)),
            Self::Move(args) => block_on(move_file(&args)),
            Self::Forecast(args) => block_on(forecast::forecast(&args)),
        }
    }
}

impl How {
    pub(super) fn tuning(&self) -> Tuning {
        Tuning {
            threads: self.threads,
            connections: self.connections,
            memory_bytes: self.memory,
            stall: self.timeout,
            away: self.timeout.min(Tuning::default().away),
            fetches_again: true,
        }
    }

    pub(super) fn knowledge(&self) -> Knowledge {
        knowledge(self.forecasts.as_deref())
    }

    fn depots(&self) -> Depots {
        Depots::new(self.timeout.max(std::time::Duration::from_secs(1)) * 3)
    }

    fn observer(&self, what: &str) -> Observer {
        match self.json {
            true => Observer::silent(),
            false => Observer::visible(what),
        }
    }

    /// Keeps what was learned, and writes reports.
    fn end(&self, knowledge: &Knowledge, observer: &mut Observer) -> Result<()> {
        observer.finish();
        knowledge.keep();
        output::reports(observer, self.report.as_deref(), self.timeline.as_deref())
    }
}

pub(super) fn knowledge(named: Option<&str>) -> Knowledge {
    match named {
        Some("off") => Knowledge::default(),
        Some(file) => Knowledge::of_file(Path::new(file)),
        None => Knowledge::of_user(),
    }
}

impl Where {
    pub(super) fn place(&self) -> Result<Place> {
        let lbone = match self.lbone.as_str() {
            "off" => None,
            text => {
                let mut lbone: crate::Address = text.parse()?;
                if !text.ends_with(&lbone.port.to_string()) {
                    lbone.port = crossdock_lbone::PORT;
                }
                Some(lbone)
            }
        };
        Ok(Place {
            depots: self.depots.clone(),
            lbone,
            location: self.location.clone(),
            depots_max: self.max_depots,
        })
    }
}

impl Lease {
    fn reliability(&self) -> Reliability {
        match self.volatile {
            true => Reliability::Volatile,
            false => Reliability::Stable,
        }
    }
}

pub(super) fn key(file: Option<&Path>) -> Result<Option<FileKey>> {
    let Some(file) = file else {
        return Ok(None);
    };
    let shown = file.display();
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
    let key = FileKey::parse(&text).with_context(|| format!("{shown} holds no key"))?;
    Ok(Some(key))
}

/// `FIRST-END`, either of which may be left out.
pub(super) fn range(text: Option<&str>, size: u64) -> Result<Option<Range<u64>>> {
    let Some(text) = text else {
        return Ok(None);
    };
    let wrong = || anyhow!("{text:?} is not FIRST-END");
    let (first, end) = text.split_once('-').ok_or_else(wrong)?;
    let number = |text: &str, unless: u64| match text {
        "" => Ok(unless),
        text => quantity::bytes(text).map_err(|error| anyhow!(error)),
    };
    let (first, end) = (number(first, 0)?, number(end, size)?);
    ensure!(
        first <= end && end <= size,
        "bytes {first} to {end} are not all in the file, which has {size}"
    );
    Ok(Some(first..end))
}

async fn upload_file(args: &Upload) -> Result<()> {
    let mut steps = Vec::new();
    steps.extend(args.compress.then_some(StepKind::Compress));
    steps.extend(args.encrypt.then_some(StepKind::Encrypt));
    steps.extend(args.checksum.then_some(StepKind::Checksum));
    let input = match args.file == Path::new("-") {
        true => Input::stdin(args.name.as_deref().unwrap_or("stdin")),
        false => Input::open(&args.file)?,
    };
    let input = match &args.name {
        Some(name) => input.named(name),
        None => input,
    };
    let place = args.place.place()?;
    let reliability = args.lease.reliability();
    let (block_size, duration) = (args.block_size, args.lease.duration);
    let options = upload::Options {
        depots: place.find(block_size, duration, reliability).await?,
        mapping_bytes: block_size,
        copies: args.copies,
        is_direct: args.direct,
        duration,
        reliability,
        code: args.code,
        steps,
        block_bytes: args.coding_block,
        key: key(args.key.as_deref())?,
        tuning: args.how.tuning(),
    };
    let to = match (&args.output, args.file == Path::new("-")) {
        (Some(output), _) => output.clone(),
        (None, true) => bail!("standard input has no name: where the exNode goes says --output"),
        (None, false) => beside(Path::new(args.file.file_name().unwrap_or_default()), ".xnd"),
    };
    upload_with(input, &options, &args.how, &to).await
}

pub(super) async fn upload_with(
    input: Input,
    options: &upload::Options,
    how: &How,
    to: &Path,
) -> Result<()> {
    let (depots, mut knowledge) = (how.depots(), how.knowledge());
    let mut observer = how.observer("upload");
    let uploaded =
        upload::upload_knowing(&depots, input, options, &mut knowledge, &mut observer).await;
    how.end(&knowledge, &mut observer)?;
    let exnode = uploaded?;
    write_exnode(&exnode, to)?;
    let more = json!({"exnode": to.display().to_string(), "mappings": exnode.mappings.len()});
    let what = format!("{} uploaded", to.display());
    if to != Path::new("-") {
        output::transfer(&what, exnode.size(), &observer, how.json, more);
    }
    Ok(())
}

async fn download_file(args: &Download) -> Result<()> {
    let exnode = read_exnode(&args.exnode)?;
    let options = download::Options {
        range: range(args.range.as_deref(), exnode.size())?,
        key: key(args.key.as_deref())?,
        skips_md5: args.skip_md5,
        piece_bytes: args.piece_size,
        tuning: args.how.tuning(),
    };
    let to = match &args.output {
        Some(output) => output.clone(),
        None => name_for(&exnode, &args.exnode)?,
    };
    if !args.force && to != Path::new("-") {
        let is_special = to.exists() && !to.is_file();
        ensure!(
            is_special || !to.exists(),
            "{} is there already; --force replaces it",
            to.display()
        );
    }
    download_with(&exnode, &options, &args.how, &to, args.resume).await
}

/// The name in an exNode, without any folders: a file of elsewhere says it.
pub(super) fn name_for(exnode: &ExNode, document: &Path) -> Result<PathBuf> {
    if let Some(name) = exnode
        .filename()
        .and_then(|name| Path::new(name).file_name())
    {
        return Ok(name.into());
    }
    let stem = document.file_stem().filter(|_| document != Path::new("-"));
    let stem = stem.context("the exNode has no name: where the file goes says --output")?;
    Ok(stem.into())
}

pub(super) async fn download_with(
    exnode: &ExNode,
    options: &download::Options,
    how: &How,
    to: &Path,
    resumes: bool,
) -> Result<()> {
    let is_stream = to == Path::new("-") || to.exists() && !to.is_file();
    let sink = match is_stream {
        true if to == Path::new("-") => download::Output::stream(Box::new(std::io::stdout())),
        true => {
            let opened = std::fs::OpenOptions::new().write(true).open(to);
            let opened = opened.with_context(|| format!("cannot write {}", to.display()))?;
            download::Output::stream(Box::new(opened))
        }
        false => download::Output::file(to, resumes)?,
    };
    let (depots, mut knowledge) = (how.depots(), how.knowledge());
    let mut observer = how.observer("download");
    let downloaded = download::download_knowing(
        &depots,
        exnode,
        sink,
        options,
        &mut knowledge,
        &mut observer,
    );
    let downloaded = downloaded.await;
    how.end(&knowledge, &mut observer)?;
    downloaded?;
    let range = options.range.clone().unwrap_or_else(|| 0..exnode.size());
    let bytes = range.end - range.start;
    let shown = to.display();
    if to != Path::new("-") {
        let more = json!({"file": shown.to_string()});
        output::transfer(
            &format!("{shown} downloaded"),
            bytes,
            &observer,
            how.json,
            more,
        );
    }
    Ok(())
}

async fn show(args: &Stat) -> Result<()> {
    let exnode = read_exnode(&args.exnode)?;
    let (depots, knowledge) = (args.how.depots(), args.how.knowledge());
    let statuses = stat::stat(&depots, &exnode, args.how.threads, &knowledge).await;
    output::stat(&exnode, &statuses, args.how.json);
    match &args.output {
        Some(output) => write_exnode(&exnode, output),
        None => Ok(()),
    }
}

async fn refresh_file(args: &Refresh) -> Result<()> {
    let end = match (args.extend, args.reduce, args.from_now, args.longest) {
        (Some(more), ..) => End::Later(more),
        (_, Some(less), ..) => End::Earlier(less),
        (_, _, Some(duration), _) => End::In(duration),
        (_, _, _, true) => End::Latest,
        _ => bail!("until when says --extend, --reduce, --for or --longest"),
    };
    refresh_with(&args.exnode, end, &args.how).await
}

pub(super) async fn refresh_with(exnode: &Path, end: End, how: &How) -> Result<()> {
    let exnode = read_exnode(exnode)?;
    let changed = refresh::refresh(&how.depots(), &exnode, end, how.threads).await;
    let mut failed = 0;
    for (number, result) in changed.iter().enumerate() {
        if let Err(error) = result {
            failed += 1;
            if !how.json {
                output::line(&format!("mapping {number}: {error:#}"));
            }
        }
    }
    let seconds = changed
        .iter()
        .flatten()
        .map(std::time::Duration::as_secs)
        .min();
    let count = changed.len() - failed;
    match how.json {
        true => output::json(&json!({
            "refreshed": count, "failed": failed, "seconds_left_min": seconds,
        })),
        false => output::line(&format!("{count} mappings refreshed, {failed} not")),
    }
    ensure!(
        failed == 0,
        "{failed} of {} mappings were not refreshed",
        changed.len()
    );
    Ok(())
}

/// Copies to other depots; the exNode, the new mappings and the options of it.
async fn copied(
    exnode: &Path,
    copies: usize,
    part: Option<&str>,
    lease: &Lease,
    place: &Place,
    how: &How,
) -> Result<(ExNode, Vec<crossdock_exnode::Mapping>, Observer)> {
    let exnode = read_exnode(exnode)?;
    let stored = exnode
        .mappings
        .iter()
        .map(|mapping| mapping.alloc_length)
        .max();
    let (duration, reliability) = (lease.duration, lease.reliability());
    let options = augment::Options {
        depots: place
            .find(stored.unwrap_or(1), duration, reliability)
            .await?,
        copies,
        range: range(part, exnode.size())?,
        duration,
        reliability,
        tuning: how.tuning(),
    };
    let (depots, mut knowledge) = (how.depots(), how.knowledge());
    let mut observer = how.observer("copy");
    let made = augment::augment(&depots, &exnode, &options, &mut knowledge, &mut observer).await;
    how.end(&knowledge, &mut observer)?;
    Ok((exnode, made?, observer))
}

async fn augment_file(args: &Augment) -> Result<()> {
    let to = args.output.as_ref().unwrap_or(&args.exnode);
    let place = args.place.place()?;
    let (mut exnode, made, observer) = copied(
        &args.exnode,
        args.copies,
        args.range.as_deref(),
        &args.lease,
        &place,
        &args.how,
    )
    .await?;
    let (count, bytes) = (made.len(), made.iter().map(|it| it.alloc_length).sum());
    exnode.mappings.extend(made);
    write_exnode(&exnode, to)?;
    let more = json!({"mappings_added": count});
    let what = format!("{count} mappings added");
    output::transfer(&what, bytes, &observer, args.how.json, more);
    Ok(())
}

async fn copy_file(args: &Copy) -> Result<()> {
    let place = args.place.place()?;
    let copied = copied(
        &args.exnode,
        args.copies,
        None,
        &args.lease,
        &place,
        &args.how,
    );
    let (mut exnode, made, observer) = copied.await?;
    exnode.mappings = made;
    write_exnode(&exnode, &args.output)?;
    let more = json!({"mappings": exnode.mappings.len()});
    let what = format!("{} copied", args.output.display());
    output::transfer(&what, exnode.size(), &observer, args.how.json, more);
    Ok(())
}

async fn move_file(args: &Move) -> Result<()> {
    let mut place = args.place.place()?;
    if let Some(to) = &args.to {
        place.location.clone_from(to);
    }
    let to = args.output.as_ref().unwrap_or(&args.exnode);
    let copied = copied(&args.exnode, 1, None, &args.lease, &place, &args.how);
    let (mut exnode, made, observer) = copied.await?;
    let before: BTreeSet<usize> = (0..exnode.mappings.len()).collect();
    let count = made.len();
    exnode.mappings.extend(made);
    // Whoever is interrupted here has both, and can trim later.
    write_exnode(&exnode, to)?;
    let depots = args.how.depots();
    let threads = args.how.threads;
    let trimmed = trim::trim(&depots, &mut exnode, &before, false, threads).await?;
    write_exnode(&exnode, to)?;
    let more = json!({"mappings": count, "kept_at_depots": trimmed.kept_at_depots.len()});
    let what = format!("{} moved", to.display());
    output::transfer(&what, exnode.size(), &observer, args.how.json, more);
    Ok(())
}

async fn trim_file(args: &Trim) -> Result<()> {
    let to = args.output.as_ref().unwrap_or(&args.exnode);
    let mut exnode = read_exnode(&args.exnode)?;
    let depots = args.how.depots();
    let mut chosen: BTreeSet<usize> = args.mappings.iter().copied().collect();
    if args.expired || args.unreachable {
        let threads = args.how.threads;
        let statuses = stat::stat(&depots, &exnode, threads, &Knowledge::default()).await;
        let goes = |status: &stat::MappingStatus| {
            args.expired && status.is_gone
                || args.unreachable && status.probe.is_err() && !status.is_gone
        };
        let goes = statuses
            .iter()
            .enumerate()
            .filter(|(_, status)| goes(status));
        chosen.extend(goes.map(|(number, _)| number));
    } else {
        let is_said = !chosen.is_empty();
        ensure!(
            is_said,
            "which mappings says --mappings, --expired or --unreachable"
        );
    }
    let only = args.only_exnode;
    let trimmed = trim::trim(&depots, &mut exnode, &chosen, only, args.how.threads).await?;
    write_exnode(&exnode, to)?;
    let (removed, left) = (&trimmed.removed, exnode.mappings.len());
    match args.how.json {
        true => output::json(&json!({
            "removed": removed, "left": left, "kept_at_depots": trimmed.kept_at_depots,
        })),
        false => {
            for (number, why) in &trimmed.kept_at_depots {
                output::line(&format!("mapping {number} stays at its depot: {why}"));
            }
            output::line(&format!("{} mappings removed, {left} left", removed.len()));
        }
    }
    Ok(())
}

fn modify_file(args: &Modify) -> Result<()> {
    let mut exnode = read_exnode(&args.exnode)?;
    let goes = |kind| args.remove.contains(&kind);
    let (read, write, manage) = (goes(Kind::Read), goes(Kind::Write), goes(Kind::Manage));
    modify::modify(&mut exnode, read, write, manage);
    write_exnode(&exnode, &args.output)?;
    if args.json {
        output::json(&json!({"mappings": exnode.mappings.len()}));
    }
    Ok(())
}
