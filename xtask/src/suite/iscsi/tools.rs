//! libiscsi's tools and QEMU's at a LUN: found, written, read, grown, taken away; and its
//! file, as others see it.

use std::fs;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::Disk;
use crate::install;
use crate::suite::cli::program::text;

/// Bytes of the picture of a disk.
const IMAGE_BYTES: usize = 24 << 20;

pub(super) fn check(disk: &Disk<'_>) -> Result<()> {
    let url = disk.lun("tools", &[])?;
    let portal = format!("iscsi://{}", disk.address);
    let listed = disk.output("iscsi-ls", &["-s", &portal])?;
    ensure!(
        listed.contains("iqn.2026-11.io.crossdock:tools") && listed.contains("Size:127M"),
        "{listed}"
    );
    let inquiry = disk.output("iscsi-inq", &[&url])?;
    ensure!(inquiry.contains("Vendor:CROSSDCK"), "{inquiry}");
    images(disk, &url)?;
    fio(disk, &url)?;
    resize(disk, &url)?;
    rights(disk, &url)?;
    guarded(disk)
}

/// A picture of a disk goes there and back; parts are overwritten, flushed and made zeros.
fn images(disk: &Disk<'_>, url: &str) -> Result<()> {
    let image = disk.stage.folder.join("image.raw");
    let bytes: Vec<u8> = (0..IMAGE_BYTES / 8)
        .flat_map(|word| {
            (word as u64)
                .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                .to_le_bytes()
        })
        .collect();
    fs::write(&image, &bytes)?;
    let image = text(&image)?;
    disk.output(
        "qemu-img",
        &["convert", "-n", "-f", "raw", "-O", "raw", image, url],
    )?;
    disk.output(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", image, url],
    )?;
    let said = disk.output(
        "qemu-io",
        &[
            "-f",
            "raw",
            url,
            "-c",
            "write -P 0x11 4k 1M",
            "-c",
            "write -f -P 0x22 100k 4k",
            "-c",
            "write -z 2M 64k",
            "-c",
            "discard 3M 1M",
            "-c",
            "flush",
            "-c",
            "read -P 0x11 4k 96k",
            "-c",
            "read -P 0x22 100k 4k",
            "-c",
            "read -P 0 2M 64k",
            "-c",
            "read -P 0 3M 1M",
        ],
    )?;
    ensure!(!said.contains("failed"), "{said}");
    let words = ["-m", "32", "-b", "8", "-t", "1", "-r", url];
    let said = disk.output("iscsi-perf", &words)?;
    ensure!(said.contains("iops average"), "{said}");
    Ok(())
}

/// fio's own initiator writes and reads by its rules, and compares all of it.
fn fio(disk: &Disk<'_>, url: &str) -> Result<()> {
    let program = install::fio_with_libiscsi()?;
    // A colon parts names of files.
    let file = format!("--filename={}", url.replace(':', "\\:"));
    let report = disk.stage.folder.join("fio.json");
    let into = format!("--output={}", text(&report)?);
    let jobs = [
        vec!["--rw=randwrite", "--bs=4k", "--size=64M", "--iodepth=32"],
        vec![
            "--rw=randrw",
            "--bsrange=512-256k",
            "--blockalign=512",
            "--size=100M",
            "--iodepth=16",
        ],
        vec!["--rw=write", "--bs=1M", "--size=120M", "--iodepth=8"],
    ];
    for job in jobs {
        let words = [
            "--name=job",
            "--ioengine=libiscsi",
            &file,
            "--verify=sha256",
            "--verify_fatal=1",
            "--verify_state_save=0",
            "--output-format=json",
            &into,
        ];
        let said = disk.output(text(&program)?, &[&words[..], &job].concat())?;
        let told = fs::read_to_string(&report)?;
        // What it notes stands before.
        let told = told.find('{').map_or("", |at| &told[at..]);
        let told: Value = serde_json::from_str(told)?;
        let done = &told["jobs"][0];
        let count = |kind: &str| done[kind]["total_ios"].as_u64().unwrap_or(0);
        ensure!(
            done["error"] == 0 && count("read") > 100 && count("write") > 100,
            "{} {done} {said}",
            job.join(" ")
        );
    }
    Ok(())
}

fn resize(disk: &Disk<'_>, url: &str) -> Result<()> {
    let ask = |words: &[&str]| disk.up.ask(disk.stage, words);
    ask(&["lun", "resize", "tools", "1M"])?.expect(1, &["LUNs grow"])?;
    ask(&["lun", "resize", "tools", "192M"])?.json(0)?;
    let said = disk.output("iscsi-readcapacity16", &[url])?;
    ensure!(said.contains("Total size:201326592"), "{said}");
    let copied = ["lun", "create", "copy", "192M", "--from", "/.luns/tools"];
    ask(&copied)?.json(0)?;
    let copy = url.replace(":tools/", ":copy/");
    disk.output(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", url, &copy],
    )?;
    ask(&["lun", "create", "copy", "1M"])?.expect(1, &["already"])?;
    ask(&["lun", "create", "Copy", "1M"])?.expect(1, &["no name"])?;
    ask(&["lun", "remove", "copy"])?.json(0)?;
    ask(&["lun", "remove", "copy"])?.expect(1, &["no LUN copy"])
}

/// Who is not named is kept out; a secret has to be known, and is not told.
fn rights(disk: &Disk<'_>, url: &str) -> Result<()> {
    let secret = disk.stage.folder.join("secret");
    fs::write(&secret, "a-secret-of-sixteen\n")?;
    let name = "iqn.2026-11.example:initiator";
    let words = [
        "lun",
        "allow",
        "tools",
        "--initiator",
        name,
        "--chap",
        "alice",
        "--secret-file",
    ];
    let words = [&words[..], &[text(&secret)?]].concat();
    let told = disk.up.ask(disk.stage, &words)?;
    told.expect(0, &["alice"])?;
    ensure!(!told.stdout.contains("a-secret"), "{}", told.stdout);
    let with = |user: &str| url.replace("iscsi://", &format!("iscsi://{user}@"));
    let inq = |url: &str, name: &str| disk.output("iscsi-inq", &["-i", name, url]);
    ensure!(inq(url, "iqn.2026-11.example:other").is_err(), "not named");
    ensure!(inq(url, name).is_err(), "without a proof");
    ensure!(
        inq(&with("alice%a-wrong-secret"), name).is_err(),
        "a wrong proof"
    );
    inq(&with("alice%a-secret-of-sixteen"), name)?;
    let log = fs::read_to_string(disk.up.log())?;
    ensure!(!log.contains("a-secret"), "the log tells a secret");
    let words = ["lun", "deny", "tools", "--initiator", name];
    disk.up.ask(disk.stage, &words)?.json(0)?;
    inq(url, "iqn.2026-11.example:other").map(drop)
}

/// Over HTTP the file is read, and neither it nor its directory is changed.
fn guarded(disk: &Disk<'_>) -> Result<()> {
    let http = disk
        .up
        .http
        .map(|http| format!("http://{http}/.luns/tools"));
    let Some(file) = http else { return Ok(()) };
    let token = disk
        .up
        .ask(disk.stage, &["token", "create", "--read", "--write"])?;
    let token = token.json(0)?["token"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let authorization = format!("Authorization: Bearer {token}");
    let curl = |words: &[&str]| {
        let words = [
            &[
                "-s",
                "-H",
                &authorization,
                "-o",
                "/dev/null",
                "-w",
                "%{http_code}",
            ],
            words,
        ]
        .concat();
        disk.output("curl", &words)
    };
    let read = curl(&["-r", "0-4095", &file])?;
    ensure!(read == "206", "{read}");
    for words in [&["-X", "DELETE"][..], &["-X", "PUT", "-d", "x"]] {
        let refused = curl(&[words, &[&file]].concat())?;
        ensure!(refused == "403", "{words:?}: {refused}");
    }
    Ok(())
}
