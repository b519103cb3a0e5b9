//! Bytes that no mapping gives, from the rest of their group.

use std::ops::Range;
use std::sync::Arc;

use crossdock_exnode::{Group, SHARD_UNIT_BYTES, Shard};
use tokio::task::JoinSet;

use crate::download::Sources;

/// Most bytes of each shard that are restored at once: a group has up to 256 shards.
const WINDOW_BYTES: u64 = 256 << 10;

/// Bytes of the file that their own mappings do not give; none if too much of their groups is
/// lost, too.
pub(crate) async fn restore(sources: &Arc<Sources>, range: Range<u64>) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut place = range.start;
    while place < range.end {
        let mut found = None;
        for group in groups(sources, place) {
            let shard = (place - group.range.start) / group.shard_bytes;
            let column = (place - group.range.start) % group.shard_bytes;
            // Up to the end of a window of the shard.
            let start = column / SHARD_UNIT_BYTES * SHARD_UNIT_BYTES;
            let end = (start + WINDOW_BYTES).min(group.shard_bytes);
            let window = start..end;
            if let Some(data) = restore_window(sources, &group, window.clone()).await {
                let shard = data.into_iter().nth(usize::try_from(shard).ok()?)?;
                let from = usize::try_from(column - start).ok()?;
                let wanted = (range.end - place).min(end - column);
                let wanted = wanted.min(group.range.end - place);
                let to = from + usize::try_from(wanted).ok()?;
                found = Some(shard.get(from..to)?.to_vec());
                break;
            }
        }
        let more = found?;
        place += more.len() as u64;
        bytes.extend(more);
    }
    Some(bytes)
}

/// The groups that have a byte of the file.
fn groups(sources: &Sources, place: u64) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for mapping in &sources.mappings {
        if let Ok(Some(shard)) = Shard::of(mapping)
            && shard.group.range.contains(&place)
            && !groups.contains(&shard.group)
        {
            groups.push(shard.group);
        }
    }
    groups
}

/// The same columns of all data shards of a group.
async fn restore_window(
    sources: &Arc<Sources>,
    group: &Group,
    window: Range<u64>,
) -> Option<Vec<Vec<u8>>> {
    let shards = group.data_shards + group.recovery_shards;
    let mut loading = JoinSet::new();
    for number in 0..shards {
        let (sources, group, window) = (Arc::clone(sources), group.clone(), window.clone());
        loading.spawn(async move {
            let loaded = match number.checked_sub(group.data_shards) {
                None => load_data(&sources, &group, number, window).await,
                Some(index) => load_recovery(&sources, &group, index, window).await,
            };
            (number, loaded)
        });
    }
    let mut loaded = vec![None; usize::try_from(shards).ok()?];
    let mut count = 0;
    while let Some(result) = loading.join_next().await {
        let (number, shard) = result.ok()?;
        count += u32::from(shard.is_some());
        *loaded.get_mut(usize::try_from(number).ok()?)? = shard;
        if count == group.data_shards {
            break; // That is enough; the rest is given up.
        }
    }
    group.restore(loaded).ok()
}

async fn load_data(
    sources: &Sources,
    group: &Group,
    number: u32,
    window: Range<u64>,
) -> Option<Vec<u8>> {
    let shard = group.data_range(number);
    let start = (shard.start + window.start).min(shard.end);
    let end = (shard.start + window.end).min(shard.end);
    let mut bytes = sources.load_any(start..end).await?;
    bytes.resize(usize::try_from(window.end - window.start).ok()?, 0);
    Some(bytes)
}

async fn load_recovery(
    sources: &Sources,
    group: &Group,
    index: u32,
    window: Range<u64>,
) -> Option<Vec<u8>> {
    for (number, mapping) in sources.mappings.iter().enumerate() {
        let is_it = matches!(Shard::of(mapping), Ok(Some(shard))
            if shard.index == index && shard.group == *group);
        if !is_it {
            continue;
        }
        if let Ok(bytes) = sources.load(number, window.clone(), None, |_| {}).await {
            return Some(bytes);
        }
    }
    None
}
