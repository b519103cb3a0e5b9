//! The door in a real browser: headless Chromium reads a list, follows a link, uploads a
//! video that it has made, and seeks in it.

use std::fs;

use anyhow::{Context, Result};

use super::web::Web;
use crate::process::{program, run_logged};
use crate::{console, install};

/// What the browser does.
const SCRIPT: &str = include_str!("browser.mjs");

/// A page with a video; the script makes the file.
const PAGE: &[u8] = b"<!DOCTYPE html><title>video</title><video muted preload=\"metadata\" src=\"video.webm\"></video>";

pub(super) fn check(web: &Web<'_>) -> Result<()> {
    install::browser()?;
    // The console's packages have what drives a browser.
    let folder = console::build(web.stage.paths)?;
    let make = |path| {
        let head = web.put_head(path, 0);
        web.ask(head).with_context(|| format!("cannot make {path}"))
    };
    make("/browser/")?;
    make("/browser/inner/")?;
    web.put("/browser/a%20%3Ci%3E%26%C3%A4.txt", b"found by its link")?;
    web.put("/browser/inner/leaf.txt", b"leaf")?;
    web.put("/browser/watch.html", PAGE)?;
    fs::write(folder.join("door.mjs"), SCRIPT)?;
    let mut node = program("node");
    node.current_dir(folder);
    node.args(["door.mjs", "/usr/bin/chromium", &web.url("/browser/")]);
    node.env("TOKEN", &web.token);
    run_logged(node, &web.stage.log, web.stage.deadline)
}
