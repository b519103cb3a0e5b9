//! Lists of directories: pages for people, JSON for programs.

use bytes::Bytes;
use crossdock_http1::{Method, ResponseHead, Status, encode_path, preferred};
use crossdock_peer::{Attributes, FileKind, SiteAnswer, SiteError, SiteOperation, SiteReply};
use crossdock_types::{Time, WallTime};

use crate::door::{HttpDoor, What};
use crate::exchange::{IndexPage, Stage};
use crate::message::ConnId;
use crate::page::{HTML, JSON, Row, html_list, json_list};

/// Names of one page.
const ROWS_MAX: usize = 4096;

/// Names that are asked for at once, and their bytes.
const ENTRIES_MAX: usize = 1024;
const NAME_BYTES_MAX: usize = 128 << 10;

const INDEX: &[u8] = b"index.html";

/// A directory whose names are gathered.
#[derive(Debug)]
pub(crate) struct Listing {
    directory: Attributes,
    rows: Vec<Row>,
    cookie: u64,
    is_json: bool,
}

impl HttpDoor {
    /// The path leads to a directory: its own page, or a list of it.
    pub(crate) fn begin_directory(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        directory: Attributes,
    ) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let target = &exchange.head.target;
        if !target.is_directory {
            return self.answer_moved(now, wall, id);
        }
        let is_json = preferred(&exchange.head, &["text/html", "application/json"])
            == Some("application/json");
        let after = target.query_value("after");
        let is_list = is_json || after.is_some() || target.query_value("list").is_some();
        if !is_list {
            let file = directory.file;
            exchange.stage = Stage::Index(Box::new(IndexPage { directory }));
            let name = Bytes::from_static(INDEX);
            let directory = file;
            self.ask(
                now,
                id,
                What::Step,
                SiteOperation::Lookup { directory, name },
            );
            return;
        }
        let cookie = match after.map(number) {
            None => 0,
            Some(Some(cookie)) => cookie,
            Some(None) => {
                let hint = "`after` is a number that a list has given";
                return self.answer_error(now, wall, id, Status::BadRequest, hint);
            }
        };
        self.begin_list(now, id, directory, cookie, is_json);
    }

    /// Whether there is a page of its own is known.
    pub(crate) fn after_index(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        page: IndexPage,
        reply: SiteReply,
    ) {
        match reply.outcome {
            Ok(SiteAnswer::Found { attributes, .. }) if attributes.kind == FileKind::Regular => {
                self.begin_file(now, wall, id, &attributes, INDEX);
            }
            Ok(_) | Err(SiteError::NotFound) => {
                self.begin_list(now, id, page.directory, 0, false);
            }
            Err(error) => self.refuse(now, wall, id, error),
        }
    }

    fn begin_list(
        &mut self,
        now: Time,
        id: ConnId,
        directory: Attributes,
        cookie: u64,
        is_json: bool,
    ) {
        let file = directory.file;
        if let Some(exchange) = self.exchange(id) {
            exchange.stage = Stage::List(Box::new(Listing {
                directory,
                rows: Vec::new(),
                cookie,
                is_json,
            }));
        }
        self.ask(now, id, What::Step, read_directory(file, cookie));
    }

    /// More names have come.
    pub(crate) fn step_list(
        &mut self,
        now: Time,
        wall: WallTime,
        id: ConnId,
        mut list: Box<Listing>,
        reply: SiteReply,
    ) {
        let (entries, end) = match reply.outcome {
            Ok(SiteAnswer::Directory { entries, end, .. }) => (entries, end),
            Err(error) => return self.refuse(now, wall, id, error),
            Ok(_) => return self.refuse(now, wall, id, SiteError::Io),
        };
        let last = entries.last().map(|entry| entry.cookie);
        list.rows.extend(entries.into_iter().filter_map(Row::of));
        let next = last.filter(|_| !end);
        if let Some(cookie) = next
            && list.rows.len() < ROWS_MAX
        {
            list.cookie = cookie;
            let file = list.directory.file;
            if let Some(exchange) = self.exchange(id) {
                exchange.stage = Stage::List(list);
            }
            self.ask(now, id, What::Step, read_directory(file, cookie));
            return;
        }
        list.rows.sort_by(|one, other| one.name.cmp(&other.name));
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let path = exchange.path();
        let (page, media) = match list.is_json {
            true => (json_list(path, &list.rows, next), JSON),
            false => (html_list(path, &list.rows, next), HTML),
        };
        let head = ResponseHead::new(exchange.version(), Status::Ok)
            .header("Content-Type", media)
            .header("Vary", "Accept")
            .header("Cache-Control", "no-cache")
            .content_length(page.len() as u64);
        let page = match exchange.head.method {
            Method::Head => Bytes::new(),
            _ => page,
        };
        self.answer(now, wall, id, head, page);
    }

    /// A directory's path ends with a slash: what its pages refer to lies below it.
    fn answer_moved(&mut self, now: Time, wall: WallTime, id: ConnId) {
        let Some(exchange) = self.exchange(id) else {
            return;
        };
        let mut location = encode_path(exchange.path().iter().map(|name| &name[..]));
        location.push('/');
        if let Some(at) = exchange
            .head
            .target
            .raw
            .iter()
            .position(|&byte| byte == b'?')
        {
            location.push_str(&String::from_utf8_lossy(&exchange.head.target.raw[at..]));
        }
        let head = ResponseHead::new(exchange.version(), Status::MovedPermanently)
            .header("Location", location)
            .content_length(0);
        self.answer(now, wall, id, head, Bytes::new());
    }
}

fn read_directory(directory: crossdock_names::FileRef, cookie: u64) -> SiteOperation {
    SiteOperation::ReadDirectory {
        directory,
        cookie,
        entries_max: ENTRIES_MAX,
        name_bytes_max: NAME_BYTES_MAX,
        with_attributes: true,
    }
}

fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
