//! What rules do: which way bytes go is what the counters say, and they are the same bytes
//! every way. Last, what gateways keep of hot files and lend each other, and what a node has promised that is
//! drained.

use anyhow::{Context, Result, ensure};

use super::doors::{Doors, FILE_BYTES, with_doors};
use crate::process::output;
use crate::suite::Stage;

/// Where the cases' file lies.
const PATH: &str = "/ruled/sub/big.bin";
/// Of it, a range that lies at one node.
const RANGE: (usize, usize) = (70_000, 79_999);

/// The bytes of what was done, by the way that they went.
#[derive(Clone, Copy, Debug)]
struct Ways {
    injected: u64,
    by_rule: u64,
}

pub(in crate::suite) fn run(stage: &Stage<'_>) -> Result<()> {
    with_doors(stage, "suite-spiral-policy", |doors| {
        doors.policy()?;
        doors.lending().context("what another gateway keeps")?;
        doors
            .drained_then_killed()
            .context("a node that is drained")
    })
}

impl Doors<'_, '_> {
    /// Rules of a directory and of a file, over both doors.
    fn policy(&self) -> Result<()> {
        self.make_directories(&["/ruled/", "/ruled/sub/"])?;
        self.put(PATH, &self.content)?;
        self.rule(&["set", "/ruled", "relay"])?;
        let ways = self.ways(|| self.whole_of(PATH))?;
        println!("a directory's rule, over HTTP: {ways:?}");
        ensure!(ways.injected == 0 && ways.by_rule == FILE_BYTES as u64);
        let ways = self.ways(|| self.whole_over_nfs(PATH))?;
        println!("a directory's rule, over NFS: {ways:?}");
        ensure!(ways.injected == 0 && ways.by_rule == FILE_BYTES as u64);

        self.rule(&["set", PATH, "inject", "--door", "http"])?;
        let ways = self.ways(|| self.whole_of(PATH))?;
        println!("its file's, over HTTP: {ways:?}");
        ensure!(ways.injected as f64 > 0.95 * FILE_BYTES as f64 && ways.by_rule == 0);
        let ways = self.ways(|| self.whole_over_nfs(PATH))?;
        ensure!(ways.injected == 0, "over NFS: {ways:?}");

        self.rule(&["set", "/ruled", "redirect", "--request", "range"])?;
        self.rule(&["remove", PATH])?;
        self.redirected().context("sent elsewhere")?;
        let shown = self.rule(&["show", PATH])?;
        ensure!(shown.as_array().is_some_and(|rules| rules.len() == 2));
        self.rule(&["remove", "/ruled"])?;
        let shown = self.rule(&["show"])?;
        ensure!(shown.as_array().is_some_and(Vec::is_empty), "{shown}");
        let ways = self.ways(|| self.whole_of(PATH))?;
        ensure!(ways.injected as f64 > 0.95 * FILE_BYTES as f64);
        Ok(())
    }

    /// A range at one node is got there; what lies at several is sent as ever.
    fn redirected(&self) -> Result<()> {
        let url = self.url(PATH);
        let (first, last) = RANGE;
        let range = format!("{first}-{last}");
        let told = self.curl(&["-i", "-r", &range, &url], "told")?;
        let told = String::from_utf8_lossy(&told);
        let location = told
            .lines()
            .find_map(|line| line.strip_prefix("Location: "));
        ensure!(told.starts_with("HTTP/1.1 307 "), "{told}");
        let location = location.context("no location")?;
        ensure!(location.contains("/o/") && !location.contains(&self.http.to_string()));
        println!(
            "sent to {}",
            location.split("/o/").next().unwrap_or_default()
        );
        let got = self.curl(&["-L", "-r", &range, &url], "followed")?;
        ensure!(got.len() == last + 1 - first, "{} bytes", got.len());
        self.compare(first, &got)?;
        // Over the edge of a stripe.
        let ways = self.ways(|| {
            let got = self.curl(&["-r", "200000-399999", &url], "edge")?;
            self.compare(200_000, &got)
        })?;
        ensure!(ways.injected == 200_000, "{ways:?}");
        let sent = self.transfer("gateway-0")?["redirected_bytes"].as_u64();
        ensure!(sent == Some(2 * (last + 1 - first) as u64), "{sent:?}");
        Ok(())
    }

    fn ways(&self, act: impl FnOnce() -> Result<()>) -> Result<Ways> {
        let told = || -> Result<Ways> {
            let told = self.transfer("gateway-0")?;
            let number = |value: &serde_json::Value| value.as_u64().unwrap_or(0);
            Ok(Ways {
                injected: number(&told["injected_bytes"]),
                by_rule: number(&told["relayed_bytes"]["policy"]),
            })
        };
        let before = told()?;
        act()?;
        let after = told()?;
        Ok(Ways {
            injected: after.injected - before.injected,
            by_rule: after.by_rule - before.by_rule,
        })
    }

    fn make_directories(&self, paths: &[&str]) -> Result<()> {
        for path in paths {
            output(self.curl_to_write().args(["-X", "PUT"]).arg(self.url(path)))?;
        }
        Ok(())
    }

    /// Nodes send all that they may, whatever is worth it: the cases of other suites are about how.
    pub(super) fn have_all_injected(&self) -> Result<()> {
        self.rule(&["set", "/", "inject", "--from", "4K"])?;
        Ok(())
    }

    /// Nodes send what they do by themselves again.
    pub(super) fn have_none_ruled(&self) -> Result<()> {
        self.rule(&["remove", "/"])?;
        Ok(())
    }

    /// Has a manager do something about rules; the gateways have heard of it then.
    fn rule(&self, words: &[&str]) -> Result<serde_json::Value> {
        let words = [&["policy"], words, &["--json"]].concat();
        let told = self.cluster.ask("manager-0", &words)?;
        let shown = |host| self.cluster.ask(host, &["policy", "show", "--json"]);
        let all = shown("manager-0")?;
        self.until("the gateways have the rules", || {
            let shown = ["gateway-0", "gateway-1"].map(shown);
            Ok(shown
                .into_iter()
                .all(|shown| shown.is_ok_and(|it| it == all)))
        })?;
        Ok(told)
    }
}
