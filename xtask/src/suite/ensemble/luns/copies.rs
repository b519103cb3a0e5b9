//! A copy from LUN to LUN through one of two gateways: what its sockets to the other processes have
//! moved says whether the bytes have passed it.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Ensemble, Member, Processes, make_lun};
use crate::suite::iscsi::initiator::{Initiator, Said};

const MIB: u64 = 1 << 20;

/// Bytes that have to be copied, of two patterns with a hole between them.
const COPIED_BYTES: u64 = 72 * MIB;

pub(super) fn check(ensemble: &Ensemble<'_>, processes: &Processes<'_>) -> Result<()> {
    let [first, second] = [&processes.gateways[0], &processes.gateways[1]];
    for name in ["from", "to", "token"] {
        make_lun(ensemble, first, name, "128M")?;
    }
    let through = |gateway: &Member<'_>, name: &str| -> Result<String> {
        let address = gateway.door("iscsi")?;
        Ok(format!(
            "iscsi://{address}/iqn.2026-11.io.crossdock:{name}/0"
        ))
    };
    let words = [
        "write -P 0x11 0 64M",
        "write -P 0x22 10M 4k",
        "write -P 0x33 100M 8M",
        "flush",
    ];
    qemu_io(&through(first, "from")?, &words)?;
    qemu_io(&through(second, "to")?, &["write -P 0x44 0 128M", "flush"])?;
    let (from, to) = (through(second, "from")?, through(second, "to")?);
    let words = ["convert", "-n", "-C", "-f", "raw", "-O", "raw", &from, &to];
    watch(second, "EXTENDED COPY", || {
        output("qemu-img", &words).map(|_| ())
    })?;
    by_token(first, second)?;
    compare(&through(first, "from")?, &through(first, "to")?)?;
    compare(&through(first, "from")?, &through(first, "token")?)
}

/// A token that one gateway has made is used at the other one; one that nobody has made is not.
fn by_token(first: &Member<'_>, second: &Member<'_>) -> Result<()> {
    let blocks = |mib: u64| mib * (MIB / 512);
    let range =
        |start, length| Ok::<_, anyhow::Error>((blocks(start), u32::try_from(blocks(length))?));
    let ranges = [range(0, 64)?, range(100, 8)?];
    let mut maker = Initiator::connect(first.door("iscsi")?, 30, "from")?;
    let token = maker.populate(&ranges)?;
    let mut user = Initiator::connect(second.door("iscsi")?, 31, "token")?;
    let mut forged = token.clone();
    forged[300] ^= 1;
    let refused = user.write_using(&forged, &ranges)?;
    ensure!(
        matches!(refused, Said::Other(2, _)),
        "a forged token: {refused:?}"
    );
    watch(second, "WRITE USING TOKEN", || {
        let written = user.write_using(&token, &ranges)?;
        ensure!(
            matches!(written, Said::Good(_)),
            "WRITE USING TOKEN: {written:?}"
        );
        Ok(())
    })
}

/// Has something copied through a gateway, whose sockets are not to move the bytes.
fn watch(gateway: &Member<'_>, what: &str, copy: impl FnOnce() -> Result<()>) -> Result<()> {
    let pid = gateway.pid()?;
    let before = moved_bytes(pid)?;
    copy()?;
    let after = moved_bytes(pid)?;
    ensure!(!before.is_empty(), "the gateway has no connections");
    let moved = before
        .iter()
        .filter_map(|(socket, before)| Some(after.get(socket)?.saturating_sub(*before)));
    let moved: u64 = moved.sum();
    println!("{what}: {COPIED_BYTES} bytes were copied, {moved} passed the gateway");
    ensure!(
        moved < COPIED_BYTES / 100,
        "{what}: {moved} bytes passed the gateway, which was to have {COPIED_BYTES} copied"
    );
    Ok(())
}

fn compare(from: &str, to: &str) -> Result<()> {
    output("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, to])?;
    let words = [
        "read -P 0x22 10M 4k",
        "read -P 0x11 11M 53M",
        "read -P 0 64M 36M",
        "read -P 0x33 100M 8M",
    ];
    qemu_io(to, &words)
}

/// What each connection of a process has sent and received, by its ends.
fn moved_bytes(pid: u32) -> Result<BTreeMap<String, u64>> {
    let told = output("ss", &["-tinpHO"])?;
    let own = format!("pid={pid},");
    let mut moved = BTreeMap::new();
    for line in told.lines().filter(|line| line.contains(&own)) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let ends = words.get(3..5).context("a socket without ends")?.join(" ");
        let count = |name: &str| {
            let value = words.iter().find_map(|word| word.strip_prefix(name));
            value
                .and_then(|value| value.parse::<u64>().ok())
                .unwrap_or(0)
        };
        moved.insert(ends, count("bytes_sent:") + count("bytes_received:"));
    }
    Ok(moved)
}

fn qemu_io(url: &str, commands: &[&str]) -> Result<()> {
    let mut words = vec!["-f", "raw", url];
    words.extend(commands.iter().flat_map(|command| ["-c", command]));
    let said = output("qemu-io", &words)?;
    ensure!(!said.contains("failed"), "{said}");
    Ok(())
}

fn output(name: &str, words: &[&str]) -> Result<String> {
    let mut command = Command::new("timeout");
    let output = command.args(["60", name]).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{name} {}: {}\n{said}{}",
        words.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}
