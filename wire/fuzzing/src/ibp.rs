//! Requests to depots and their answers: target and seeds.

use crossdock_ibp::{Capability, Limits, Request, Status, Totals, answer, take_line};
use crossdock_limits::{IBP_ANSWER_BYTES_MAX, IBP_REQUEST_BYTES_MAX};

/// Reads any bytes as lines, and each line as everything that a line can be; and all of it as
/// a status.
///
/// # Panics
/// If what is written of what was read does not mean the same.
pub fn ibp(input: &[u8]) {
    let mut rest = input;
    while let Ok(Some((line, bytes))) = take_line(rest, IBP_REQUEST_BYTES_MAX) {
        assert!(line.len() < bytes && bytes <= IBP_REQUEST_BYTES_MAX);
        request(line);
        answers(line);
        rest = &rest[bytes..];
    }
    if let Ok(status) = Status::parse(input) {
        assert_eq!(Status::parse(status.to_string().as_bytes()), Ok(status));
    }
}

fn request(line: &[u8]) {
    if let Ok(request) = Request::parse(line) {
        let again = request.to_string();
        assert_eq!(Request::parse(cut(&again)), Ok(request));
    }
    if let Ok(limits) = Limits::parse(line) {
        assert_eq!(Limits::parse(cut(&limits.to_string())), Ok(limits));
    }
    if let Some(capability) = str::from_utf8(line).ok().and_then(|it| it.parse().ok()) {
        let capability: Capability = capability;
        assert_eq!(capability.to_string().parse(), Ok(capability));
    }
}

fn answers(line: &[u8]) {
    if let Ok(bytes) = answer::read_bytes(line) {
        assert_eq!(answer::read_bytes(cut(&answer::stored(bytes))), Ok(bytes));
        assert_eq!(answer::read_bytes(cut(&answer::follows(bytes))), Ok(bytes));
    }
    if let Ok(probe) = answer::read_probe(line) {
        assert_eq!(answer::read_probe(cut(&answer::probed(&probe))), Ok(probe));
    }
    if let Ok(three) = answer::read_capabilities(line) {
        let again = answer::allocated(&three);
        assert_eq!(answer::read_capabilities(cut(&again)), Ok(three));
    }
    if let Ok(ids) = answer::read_resources(line) {
        let again = answer::resources(&ids);
        assert_eq!(answer::read_resources(cut(&again)), Ok(ids));
    }
    if let Ok(totals) = Totals::parse(line) {
        assert_eq!(Totals::parse(cut(&totals.to_string())), Ok(totals));
    }
    if let Err(error) = answer::read_done(line) {
        assert!(!error.to_string().is_empty());
    }
}

/// A line that was written, as it is read: without its LF.
fn cut(line: &str) -> &[u8] {
    let (cut, bytes) = take_line(line.as_bytes(), usize::MAX)
        .expect("any length is allowed")
        .expect("it ends with LF");
    assert!(bytes == line.len() && bytes <= 2 * IBP_ANSWER_BYTES_MAX);
    cut
}

/// Lines of both directions.
pub(crate) fn ibp_seeds() -> Vec<Vec<u8>> {
    let requests = "1 4 0 1 ibp 0\n0 4 1 ibp 10\n0 4 2 ibp 10\n1 4 3 10\n100 200 -1 \n\
                    1 1 0 2 1 3600 102400 0\n0 1 1 4 3600 10 0\n\
                    0 2 0#IBP-9DpxFj1W 9482785 102400 40 \n1 13 0#k 5 7 10 0 \n\
                    0 8 1#wva0JrU0 13614433171500630234 0 204800 601 \n";
    let manage = "0 9 0#k 5 40 0 0 0 0 0\n0 9 0#k 5 40 0 1\n0 9 0#k 5 41 1 0\n0 9 0#k 5 42 2 0\n\
                  0 9 0#k 5 43 0 102400 10625 2 20\n0 9 0#k 5 45 99 7\n";
    let copy = "0 5 0#IBP-M3BK ibp://127.0.0.1:16712/0#IBP-vmU3/2003062377/WRITE 36697459 0 102400 \
                39 39 40 \r\n";
    let answers = "1 \n1 102400\n1 137 \n1 1 1 102400 102400 3426 2 1 \n500 0 800 0 864000 \n \
                   -28 \n-66 1.5\n1 ibp://h:1/0#k/5/READ ibp://h:1/0#k/6/WRITE \
                   IBP://[fd00::1]:1/0#k/7/MANAGE \nibp://h:1/0#k/5/READ\n1 0 1 2 \n";
    let status = "VS:1.4:0.4 DT:1:2:3 RID:0 RT:1 CT:838860800 ST:838860800 UT:128 AT:838860672 \
                  CH:524288000 SH:524288000 UH:128 AH:524287872 DR:864000 RE \n";
    [requests, manage, copy, answers, status]
        .map(|seed| seed.as_bytes().to_vec())
        .to_vec()
}
