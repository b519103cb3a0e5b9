//! The console: a page in the binary, built from registry/admin/console by
//! `cargo xtask gen console` and checked in.

use axum::Router;
use axum::http::header;
use axum::response::IntoResponse;
use axum::routing::get;

const PAGE: &str = include_str!("../console/dist/index.html");
const SCRIPT: &str = include_str!("../console/dist/console.js");
const STYLE: &str = include_str!("../console/dist/console.css");

pub(crate) fn routes() -> Router {
    Router::new()
        .route("/", text("text/html; charset=utf-8", PAGE))
        .route(
            "/console.js",
            text("text/javascript; charset=utf-8", SCRIPT),
        )
        .route("/console.css", text("text/css; charset=utf-8", STYLE))
}

fn text(kind: &'static str, text: &'static str) -> axum::routing::MethodRouter {
    get(move || async move { ([(header::CONTENT_TYPE, kind)], text).into_response() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the page asks for nothing from elsewhere, and has no inline script
    /// or style, which its policy forbids.
    #[test]
    fn the_page_is_complete_in_itself() {
        for text in [PAGE, STYLE] {
            assert!(!text.contains("http:") && !text.contains("https:"));
        }
        assert!(!PAGE.contains("<style") && !PAGE.contains(" style="));
        assert!(PAGE.contains("<script type=\"module\" src=\"/console.js\"></script>"));
        for id in ["tiles", "topology", "nodes", "clients", "slow", "events"] {
            assert!(SCRIPT.contains(&format!("\"{id}\"")), "{id}");
        }
    }
}
