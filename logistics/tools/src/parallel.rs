//! Many small requests, some at a time.

use std::future::Future;

use tokio::task::JoinSet;

/// Does `work` for each of `items`, `limit` at a time; the answers are in the order of the
/// items, none of one that has panicked.
pub(crate) async fn each<I, T, F>(
    items: impl IntoIterator<Item = I>,
    limit: usize,
    work: impl Fn(I) -> F,
) -> Vec<Option<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let mut running = JoinSet::new();
    let mut answers = Vec::new();
    let take = |ended: Option<Result<(usize, T), tokio::task::JoinError>>,
                answers: &mut Vec<Option<T>>| {
        if let Some(Ok((number, answer))) = ended {
            answers[number] = Some(answer);
        }
    };
    for (number, item) in items.into_iter().enumerate() {
        answers.push(None);
        while running.len() >= limit.max(1) {
            take(running.join_next().await, &mut answers);
        }
        let future = work(item);
        running.spawn(async move { (number, future.await) });
    }
    while !running.is_empty() {
        take(running.join_next().await, &mut answers);
    }
    answers
}
