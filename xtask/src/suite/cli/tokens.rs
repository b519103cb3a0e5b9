//! Bearer tokens and signed URLs of a running server: made, listed, revoked, kept over a
//! restart; no secret anywhere; what an administrator may get wrong.

use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use crossdock_names::HandleKey;
use crossdock_web::{Denial, Grant, Method, SignedUrl, SigningKey, SigningKeys, TokenSecret};
use serde_json::{Value, json};

use super::program::{Finished, Up, crossdock, text};
use super::secrets;
use crate::suite::Stage;

/// What stands before paths.
const BASE: &str = "http://files.example:8080";

/// Longer than a command takes, in seconds.
const SLACK: u64 = 60;

type Ask<'a> = dyn Fn(&[&str]) -> Result<Finished> + 'a;

/// What `crossdock token` does lasts, and no secret is anywhere but where it was printed.
pub(super) fn changes(stage: &Stage<'_>) -> Result<()> {
    let up = start(stage)?;
    let ask = |words: &[&str]| up.ask(stage, words);
    let list = ask(&["token", "list"])?.json(0)?;
    ensure!(list == json!([]), "{list}");
    let made = ask(&[
        "token",
        "create",
        "--read",
        "--write",
        "--path",
        "//builds/50% off/",
        "--for",
        "2h",
        "--name",
        "ci",
        "--uid",
        "1000",
        "--gid",
        "100",
    ])?
    .json(0)?;
    let expected = json!({
        "name": "ci", "read": true, "write": true, "path": "/builds/50%25%20off", "uid": 1000, "gid": 100,
    });
    holds(&made, &expected, 7200)?;
    let other = ask(&["token", "create"])?.json(0)?;
    let name = format!("token-{}", other["id"].as_str().context("no number")?);
    let expected = json!({
        "name": name, "read": true, "write": false, "path": "/", "uid": 0, "gid": 0,
    });
    holds(&other, &expected, 30 * 24 * 3600)?;
    let writer = ask(&["token", "create", "--write", "--name", "in"])?.json(0)?;
    ensure!(
        writer["read"] == false && writer["write"] == true,
        "{writer}"
    );
    refusals(&ask)?;

    let listed = ask(&["token", "list"])?;
    let list = listed.json(0)?;
    ensure!(
        list.as_array().map(Vec::len) == Some(3) && list[0]["name"] == "ci",
        "{list}"
    );
    ensure!(
        list[0].get("token").is_none() && list[0].get("digest").is_none(),
        "{list}"
    );
    ask(&["token", "revoke", "ci"])?.json(0)?;
    ask(&["token", "revoke", "ci"])?.expect(1, &["no token ci", "token list"])?;
    let url = signed(stage, &ask)?;
    let logged: String = up.stop()?.iter().map(Value::to_string).collect();

    let up = start(stage)?;
    let ask = |words: &[&str]| up.ask(stage, words);
    let list = ask(&["token", "list"])?.json(0)?;
    ensure!(
        list.as_array().map(Vec::len) == Some(2) && list[0]["name"] == name,
        "{list}"
    );
    let id = other["id"].as_str().unwrap_or_default();
    let gone = ask(&["token", "revoke", id])?.json(0)?;
    ensure!(gone["name"] == name, "{gone}");
    verify(stage, Method::Get, &url)?.map_err(|denial| anyhow!("after a restart: {denial}"))?;
    up.stop()?;

    let registry = String::from_utf8_lossy(&fs::read(pool(stage).join("registry"))?).into_owned();
    for kept in [&logged, &registry, &listed.stdout] {
        ensure!(kept.contains("ci"), "it has nothing of tokens");
        for token in [&made, &other, &writer] {
            let text = token["token"].as_str().context("no token")?;
            let secret = text.rsplit('-').next().unwrap_or(text);
            ensure!(!kept.contains(&secret[..16]), "a secret is kept");
        }
    }
    Ok(())
}

/// Whether a token that was made says what was asked for, with a secret of its own.
fn holds(made: &Value, expected: &Value, seconds: u64) -> Result<()> {
    for (key, value) in expected.as_object().context("no object")? {
        ensure!(made[key] == *value, "{key} of {made}");
    }
    let text = made["token"].as_str().context("no token")?;
    let secret: TokenSecret = text.parse()?;
    ensure!(made["id"] == format!("{:08x}", secret.id), "{made}");
    let number = |key: &str| made[key].as_u64().context("no time");
    let (created, expires) = (number("created")?, number("expires")?);
    ensure!(
        expires == created + seconds && created.abs_diff(now()?) < SLACK,
        "{made}"
    );
    Ok(())
}

/// What an administrator may get wrong is refused with a next step.
fn refusals(ask: &Ask<'_>) -> Result<()> {
    let secret = format!("crossdockweb1-00000000-{}", "ab".repeat(32));
    let sign = ["sign", "--url", BASE];
    let cases: [(&[&str], i32, &[&str]); 14] = [
        (
            &["token", "create", "--name", "ci"],
            1,
            &["token ci already", "token revoke ci"],
        ),
        (&["token", "create", "--name", "a b"], 1, &["letters"]),
        (&["token", "create", "--name", "0a0b0c0d"], 1, &["number"]),
        (
            &["token", "create", "--path", "builds"],
            2,
            &["begins with /"],
        ),
        (&["token", "create", "--path", "/a/../b"], 2, &["`..`"]),
        (&["token", "create", "--for", "soon"], 2, &["30m"]),
        (&["token", "create", "--uid", "7"], 2, &["--gid"]),
        (
            &["token", "revoke", "nobody"],
            1,
            &["no token nobody", "token list"],
        ),
        (&["token", "revoke", &secret], 2, &["name or number"]),
        (&[&sign[..], &["file"]].concat(), 2, &["begins with /"]),
        (&[&sign[..], &["/a/./b"]].concat(), 2, &["`.`"]),
        (
            &[&sign[..], &["/f", "--for", "8d"]].concat(),
            1,
            &["7 days", "token create"],
        ),
        (
            &[&sign[..], &["/f", "--method", "DELETE"]].concat(),
            2,
            &["GET", "PUT"],
        ),
        (&["sign", "/f", "--url", "files.example"], 2, &["https://"]),
    ];
    for (words, code, expected) in cases {
        let finished = ask(words)?;
        finished
            .expect(code, expected)
            .with_context(|| format!("{words:?}"))?;
        ensure!(!finished.stderr.contains("abab"), "a secret is repeated");
    }
    Ok(())
}

/// URLs hold for what they were signed for, by the key that the volume has.
fn signed(stage: &Stage<'_>, ask: &Ask<'_>) -> Result<String> {
    let get = ask(&[
        "sign",
        "/a b/file",
        "--url",
        &format!("{BASE}/"),
        "--for",
        "1h",
    ])?
    .json(0)?;
    let url = get["url"].as_str().context("no URL")?.to_owned();
    ensure!(
        url.starts_with(&format!("{BASE}/a%20b/file?expires=")),
        "{url}"
    );
    let expires = get["expires"].as_u64().context("no end")?;
    ensure!(
        expires.abs_diff(now()? + 3600) < SLACK && get["method"] == "GET",
        "{get}"
    );
    let root = Grant { uid: 0, gid: 0 };
    ensure!(verify(stage, Method::Get, &url)? == Ok(root), "{url}");
    for (method, forged) in [
        (Method::Put, url.clone()),
        (Method::Get, url.replace("/file?", "/file2?")),
        (Method::Get, url.replace("expires=", "expires=9")),
    ] {
        ensure!(
            verify(stage, method, &forged)? == Err(Denial::Signature),
            "{forged}"
        );
    }
    let words = [
        "sign", "/new", "--method", "put", "--url", BASE, "--uid", "7", "--gid", "8",
    ];
    let put = ask(&words)?.json(0)?;
    let put = put["url"].as_str().context("no URL")?;
    ensure!(
        verify(stage, Method::Put, put)? == Ok(Grant { uid: 7, gid: 8 }),
        "{put}"
    );
    Ok(url)
}

/// What a gateway of the volume says to a URL.
fn verify(stage: &Stage<'_>, method: Method, url: &str) -> Result<Result<Grant, Denial>> {
    let journal = fs::read(pool(stage).join("node-0/journal"))?;
    let secret = secrets::key(&journal)?;
    let key = secret[..].try_into().context("a key has 32 bytes")?;
    let keys = SigningKeys::new(SigningKey::derive(&HandleKey { id: 1, key }));
    let target = url.strip_prefix(BASE).context("another gateway")?;
    let (path, query) = target.split_once('?').context("no query")?;
    let path = path.parse()?;
    Ok(SignedUrl::verify(
        &keys,
        method,
        &path,
        query.as_bytes(),
        now()?,
    ))
}

/// A volume of its own: the key is to be in a journal that has not come round yet.
fn pool(stage: &Stage<'_>) -> PathBuf {
    stage.folder.join("tokens")
}

fn start(stage: &Stage<'_>) -> Result<Up> {
    let data = pool(stage);
    let arguments = ["up", "--nodes", "2", "--data", text(&data)?];
    Up::start(stage, crossdock(stage, &arguments))
}

fn now() -> Result<u64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs())
}
