//! A copy from LUN to LUN through one of two gateways: what its sockets to the other processes have
//! moved says whether the bytes have passed it.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Ensemble, Processes, make_lun};

const MIB: u64 = 1 << 20;

/// Bytes that have to be copied, of two patterns with a hole between them.
const COPIED_BYTES: u64 = 72 * MIB;

pub(super) fn check(ensemble: &Ensemble<'_>, processes: &Processes<'_>) -> Result<()> {
    let [first, second] = [&processes.gateways[0], &processes.gateways[1]];
    for name in ["from", "to"] {
        make_lun(ensemble, first, name, "128M")?;
    }
    let through = |gateway: &super::Member<'_>, name: &str| -> Result<String> {
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
    let pid = second.pid()?;
    let before = moved_bytes(pid)?;
    let words = ["convert", "-n", "-C", "-f", "raw", "-O", "raw", &from, &to];
    output("qemu-img", &words)?;
    let after = moved_bytes(pid)?;
    let moved = before
        .iter()
        .filter_map(|(socket, before)| Some(after.get(socket)? - before));
    let moved: u64 = moved.sum();
    ensure!(!before.is_empty(), "the gateway has no connections");
    ensure!(
        moved < COPIED_BYTES / 100,
        "{moved} bytes passed the gateway, which was to have {COPIED_BYTES} copied"
    );
    println!("{COPIED_BYTES} bytes were copied, {moved} passed the gateway");
    let (from, to) = (through(first, "from")?, through(first, "to")?);
    output(
        "qemu-img",
        &["compare", "-f", "raw", "-F", "raw", &from, &to],
    )?;
    let words = [
        "read -P 0x22 10M 4k",
        "read -P 0x11 11M 53M",
        "read -P 0 64M 36M",
        "read -P 0x33 100M 8M",
    ];
    qemu_io(&to, &words)
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
