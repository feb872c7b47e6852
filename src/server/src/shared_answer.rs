//! An answer that all callers share, because strangers may ask too, and as often as they like.

use std::time::{Duration, Instant};

use futures::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;
use tokio::task::AbortHandle;

/// Least time between the beginnings of two questions.
const INTERVAL: Duration = Duration::from_secs(1);

/// The last answer, or the question under way. There is at most one question in [`INTERVAL`], and never a second one at the
/// same time.
#[derive(Debug, Default)]
pub(crate) struct SharedAnswer(Mutex<Option<SharedQuestion>>);

#[derive(Debug)]
struct SharedQuestion {
    begun: Instant,
    task: AbortHandle,
    answer: Shared<BoxFuture<'static, bool>>,
}

impl SharedQuestion {
    /// Asks in a task of its own: a caller that leaves must not make the next one ask again.
    fn begin(ask: impl Future<Output = bool> + Send + 'static) -> Self {
        let task = tokio::spawn(ask);
        let begun = Instant::now();
        Self { begun, task: task.abort_handle(), answer: task.map(|ended| ended.unwrap_or(false)).boxed().shared() }
    }

    fn is_current(&self) -> bool {
        !self.task.is_finished() || self.begun.elapsed() < INTERVAL
    }
}

impl SharedAnswer {
    /// The answer of the last question, if it is current. Otherwise this asks; a question that panics is answered with no.
    pub(crate) async fn get(&self, ask: impl Future<Output = bool> + Send + 'static) -> bool {
        let answer = {
            let mut last = self.0.lock();
            drop(last.take_if(|question| !question.is_current()));
            last.get_or_insert_with(|| SharedQuestion::begin(ask)).answer.clone()
        };
        answer.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use futures::future::join_all;
    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test]
    async fn callers_share_one_question_a_second() {
        let (shared, asked) = (SharedAnswer::default(), Arc::new(AtomicUsize::new(0)));
        let ask = |answer: bool| {
            let asked = asked.clone();
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(Duration::from_millis(100)).await;
                answer
            }
        };
        let all = join_all((0..50).map(|_| shared.get(ask(true)))).await;
        assert!(all.iter().all(|answer| *answer));
        assert!(shared.get(ask(false)).await, "the answer of this second");
        assert_eq!(asked.load(Ordering::Relaxed), 1);
        sleep(INTERVAL).await;
        assert!(!shared.get(ask(false)).await);
        assert_eq!(asked.load(Ordering::Relaxed), 2);
    }

    /// A stranger connects, asks and leaves.
    #[tokio::test]
    async fn callers_that_leave_cost_one_question() {
        let (shared, asked) = (SharedAnswer::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let asked = asked.clone();
            async move {
                asked.fetch_add(1, Ordering::Relaxed);
                sleep(INTERVAL * 2).await;
                true
            }
        };
        for _ in 0..50 {
            let left = timeout(Duration::from_millis(30), shared.get(ask())).await;
            assert!(left.is_err());
        }
        assert!(shared.get(ask()).await);
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn a_panic_is_no() {
        assert!(!SharedAnswer::default().get(async { unreachable!("a defect") }).await);
    }
}
