//! What keeps web pages of others from the admin port, which a browser on the
//! administrator's machine reaches: DNS rebinding and cross-site requests.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Json, Response};
use serde_json::json;

/// Headers of every answer: nothing is loaded from elsewhere, nobody frames it,
/// no answer is taken for something else than it says.
const HEADERS: [(HeaderName, &str); 4] = [
    (
        header::CONTENT_SECURITY_POLICY,
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::REFERRER_POLICY, "no-referrer"),
    (header::CACHE_CONTROL, "no-cache"),
];

/// Names, besides addresses and `localhost`, under which the port may be asked.
pub(crate) type Names = Arc<[String]>;

/// Lets a request through that somebody meant for us.
pub(crate) async fn guard(State(names): State<Names>, request: Request, next: Next) -> Response {
    let refusal = refusal(request.method(), request.headers(), &names);
    let mut response = match refusal {
        None => next.run(request).await,
        Some(why) => (StatusCode::FORBIDDEN, Json(json!({"error": why}))).into_response(),
    };
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().entry(name).or_insert(value);
    }
    response
}

/// Why a request is refused, if it is.
fn refusal(method: &Method, headers: &HeaderMap, names: &[String]) -> Option<&'static str> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    // A name that somebody else gives out may lead here today (DNS rebinding):
    // a page from there would be of the same origin. An address leads nowhere else.
    let host = text(header::HOST).unwrap_or_default().trim();
    if !is_ours(host, names) {
        return Some(
            "this name is not known here: ask by address, or start crossdock up with --admin-name NAME",
        );
    }
    if matches!(*method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return None;
    }
    // Browsers say which page wants to change something; programs do not.
    let is_elsewhere = |origin: &str| {
        let (_, of) = origin.split_once("://").unwrap_or(("", origin));
        !of.eq_ignore_ascii_case(host)
    };
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let is_cross_site = site.is_some_and(|site| !matches!(site, "same-origin" | "none"));
    (is_cross_site || text(header::ORIGIN).is_some_and(is_elsewhere))
        .then_some("a page of another site may change nothing here")
}

/// Whether a `Host` header names this port by address, as `localhost`, or by a
/// name that was configured.
fn is_ours(host: &str, names: &[String]) -> bool {
    if let Some((address, rest)) = host.strip_prefix('[').and_then(|host| host.split_once(']')) {
        return address.parse::<Ipv6Addr>().is_ok() && is_port(rest);
    }
    let (name, port) = host.split_at(host.find(':').unwrap_or(host.len()));
    let is_known = name.eq_ignore_ascii_case("localhost")
        || name.parse::<IpAddr>().is_ok()
        || names.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    is_known && is_port(port)
}

fn is_port(text: &str) -> bool {
    let port = text.strip_prefix(':');
    text.is_empty() || port.is_some_and(|port| port.parse::<u16>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_let_in(method: Method, given: &[(&'static str, &str)]) -> bool {
        let mut headers = HeaderMap::new();
        for (name, value) in given {
            let value = HeaderValue::from_str(value).expect("a value");
            headers.insert(HeaderName::from_static(name), value);
        }
        refusal(&method, &headers, &["nas.example".to_owned()]).is_none()
    }

    /// Goal: a name that anybody could point here is refused; addresses, local
    /// names and configured ones are not.
    #[test]
    fn only_known_names_are_answered() {
        for host in [
            "127.0.0.1:7070",
            "[::1]:7070",
            "10.0.0.1",
            "LocalHost:1",
            "nas.example:80",
        ] {
            assert!(is_let_in(Method::GET, &[("host", host)]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:7070",
            "127.0.0.1.evil.example",
            "[::1].evil.example",
            "nas.example.evil",
            "127.0.0.1:7070@evil",
            "",
        ] {
            assert!(!is_let_in(Method::GET, &[("host", host)]), "{host}");
        }
    }

    /// Goal: a page elsewhere cannot change anything, whatever it sends; our own
    /// page and programs can.
    #[test]
    fn pages_elsewhere_change_nothing() {
        let host = ("host", "127.0.0.1:7070");
        assert!(is_let_in(Method::POST, &[host]));
        let own = [
            host,
            ("origin", "http://127.0.0.1:7070"),
            ("sec-fetch-site", "same-origin"),
        ];
        assert!(is_let_in(Method::DELETE, &own));
        for foreign in [
            ("origin", "http://evil.example"),
            ("origin", "http://127.0.0.1:8080"),
            ("origin", "null"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
        ] {
            assert!(!is_let_in(Method::POST, &[host, foreign]), "{foreign:?}");
            assert!(
                is_let_in(Method::GET, &[host, foreign]),
                "reads are not readable there"
            );
        }
    }
}
