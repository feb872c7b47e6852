//! Asks the API server who a user is and what the user may see.

use std::net::IpAddr;

use std::time::Duration;

use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tokio::{
    sync::Semaphore,
    time::{Instant, timeout},
};

use super::{
    budget::Budget,
    grants::{Grants, Question, Verdict},
    refusal::PageRefusal,
};

/// Questions to the API server at the same time, about rights that it granted a short time ago, and all others.
const CONCURRENCY: usize = 4;
/// Time for the answers to one caller.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Decides by `TokenReview` and `SubjectAccessReview`. Callers that were allowed nothing yet have a small budget and places of
/// their own, so that they neither load the API server nor hold up those that were.
pub(super) struct Reviews {
    client: Client,
    grants: Mutex<Grants>,
    budget: Mutex<Budget>,
    known: Semaphore,
    strangers: Semaphore,
}

impl Reviews {
    /// Asks with this client, whose user needs the right to create both reviews.
    pub(super) fn new(client: Client) -> Self {
        let [known, strangers] = [CONCURRENCY; 2].map(Semaphore::new);
        Self { client, grants: Mutex::default(), budget: Mutex::default(), known, strangers }
    }

    /// Refuses a token unless its user may see the ensembles of the namespace.
    ///
    /// # Errors
    /// Why the user sees nothing.
    pub(super) async fn check(&self, token: &str, address: IpAddr, namespace: Option<&str>) -> Result<(), PageRefusal> {
        let question: Question = (Sha256::digest(token).into(), namespace.map(str::to_owned));
        let known = self.grants.lock().get(&question, Instant::now());
        let verdict = match known {
            Some(verdict) => verdict,
            None => self.ask(token, address, question).await?,
        };
        match verdict {
            Verdict::Allowed => Ok(()),
            Verdict::UnknownToken => Err(PageRefusal::Token),
            Verdict::Forbidden => Err(PageRefusal::Forbidden(namespace.map(str::to_owned))),
        }
    }

    /// The API server's decision, which counts for a while. A failure is no decision.
    async fn ask(&self, token: &str, address: IpAddr, question: Question) -> Result<Verdict, PageRefusal> {
        let known = self.grants.lock().was_allowed(&question, Instant::now());
        if !known && !self.budget.lock().take(address, Instant::now()) {
            return Err(PageRefusal::Busy);
        }
        let permits = if known { &self.known } else { &self.strangers };
        let Ok(Ok(_permit)) = timeout(TIMEOUT, permits.acquire()).await else { return Err(PageRefusal::Busy) };
        let asked = Instant::now();
        // Another request may have asked the same meanwhile.
        let decided = self.grants.lock().get(&question, asked);
        if let Some(verdict) = decided {
            return Ok(verdict);
        }
        let answer = timeout(TIMEOUT, self.review(token, question.1.as_deref())).await;
        let verdict = match answer {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(error)) => return Err(failed(&error.to_string())),
            Err(_) => return Err(failed("the API server does not answer")),
        };
        self.grants.lock().put(question, verdict, asked);
        Ok(verdict)
    }

    async fn review(&self, token: &str, namespace: Option<&str>) -> kube::Result<Verdict> {
        let spec = TokenReviewSpec { token: Some(token.to_owned()), ..TokenReviewSpec::default() };
        let review = TokenReview { metadata: ObjectMeta::default(), spec, status: None };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let status = review.status.unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        let Some(user) = user else { return Ok(Verdict::UnknownToken) };
        let spec = question(user, namespace);
        let review = SubjectAccessReview { metadata: ObjectMeta::default(), spec, status: None };
        let review = Api::all(self.client.clone()).create(&PostParams::default(), &review).await?;
        let allowed = review.status.is_some_and(|status| status.allowed && status.denied != Some(true));
        Ok(if allowed { Verdict::Allowed } else { Verdict::Forbidden })
    }
}

/// May the user get the MultiClusterZooKeepers of the namespace, or list them in all?
fn question(user: UserInfo, namespace: Option<&str>) -> SubjectAccessReviewSpec {
    let attributes = ResourceAttributes {
        group: Some("mczk.io".to_owned()),
        resource: Some("multiclusterzookeepers".to_owned()),
        verb: Some(if namespace.is_some() { "get" } else { "list" }.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    SubjectAccessReviewSpec {
        user: user.username,
        uid: user.uid,
        groups: user.groups,
        extra: user.extra,
        resource_attributes: Some(attributes),
        ..SubjectAccessReviewSpec::default()
    }
}

/// The log has the cause. It may name the operator's user, which is no business of the caller.
fn failed(cause: &str) -> PageRefusal {
    tracing::warn!(
        error = cause,
        "Cannot check a token for the dashboard. The operator's user needs the rights of `mczk register --dashboard`"
    );
    PageRefusal::Failed
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    };

    use http_body_util::BodyExt;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    const HOME: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    /// An API server that knows the token `ann`, who may get ensembles in the namespace `a`, and counts the questions.
    fn reviews() -> (Reviews, Arc<AtomicUsize>) {
        let count = Arc::<AtomicUsize>::default();
        let counted = count.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let mut review: Value = serde_json::from_slice(&body).unwrap();
                review["status"] = answer(&review);
                let body = Body::from(serde_json::to_vec(&review).unwrap());
                Ok::<_, std::convert::Infallible>(http::Response::new(body))
            }
        });
        (Reviews::new(Client::new(service, "n")), count)
    }

    fn answer(review: &Value) -> Value {
        let spec = &review["spec"];
        if review["kind"] == "TokenReview" {
            let known = spec["token"] == "ann";
            return json!({ "authenticated": known, "user": { "username": "Ann", "groups": ["g"], "extra": { "k": ["v"] } } });
        }
        assert_eq!(
            (&spec["user"], &spec["groups"][0], &spec["extra"]["k"][0]),
            (&json!("Ann"), &json!("g"), &json!("v"))
        );
        let asked = &spec["resourceAttributes"];
        assert_eq!((&asked["group"], &asked["resource"]), (&json!("mczk.io"), &json!("multiclusterzookeepers")));
        json!({ "allowed": asked["namespace"] == "a" && asked["verb"] == "get" })
    }

    #[tokio::test]
    async fn the_api_server_decides() {
        let (reviews, _) = reviews();
        assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
        assert_eq!(reviews.check("ann", HOME, Some("b")).await, Err(PageRefusal::Forbidden(Some("b".to_owned()))));
        assert_eq!(reviews.check("ann", HOME, None).await, Err(PageRefusal::Forbidden(None)), "all namespaces");
        assert_eq!(reviews.check("bob", HOME, Some("a")).await, Err(PageRefusal::Token));
    }

    #[tokio::test]
    async fn a_decision_is_asked_once_until_it_expires() {
        let (reviews, count) = reviews();
        for _ in 0..3 {
            assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
            assert_eq!(reviews.check("bob", HOME, Some("a")).await, Err(PageRefusal::Token));
        }
        assert_eq!(count.load(Ordering::Relaxed), 3, "two questions about ann, one about bob");
        let question = (Sha256::digest("ann").into(), Some("a".to_owned()));
        let long_ago = Instant::now().checked_sub(super::super::grants::LIFETIME).unwrap();
        reviews.grants.lock().put(question, Verdict::Allowed, long_ago);
        assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
        assert_eq!(count.load(Ordering::Relaxed), 5, "the API server was asked again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_no_decision() {
        let service = tower::service_fn(|_: http::Request<Body>| {
            std::future::ready(Err::<http::Response<Body>, _>(std::io::Error::other("no route")))
        });
        let reviews = Reviews::new(Client::new(service, "n"));
        assert_eq!(reviews.check("ann", HOME, None).await, Err(PageRefusal::Failed));
        assert_eq!(reviews.grants.lock().get(&(Sha256::digest("ann").into(), None), Instant::now()), None);
        let permits = reviews.strangers.acquire_many(u32::try_from(CONCURRENCY).unwrap()).await.unwrap();
        assert_eq!(reviews.check("ann", HOME, None).await, Err(PageRefusal::Busy));
        drop(permits);
    }

    /// A user asks for one namespace after the other.
    #[tokio::test(start_paused = true)]
    async fn questions_about_many_namespaces_are_bounded() {
        let (reviews, count) = reviews();
        assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
        for number in 0..1000 {
            let refusal = reviews.check("ann", HOME, Some(&format!("n{number}"))).await.unwrap_err();
            assert!(matches!(refusal, PageRefusal::Forbidden(_) | PageRefusal::Busy));
        }
        assert!(count.load(Ordering::Relaxed) <= 2 * 20, "{count:?}");
        // The budget of the address is used up, but not for a right that was granted.
        tokio::time::advance(super::super::grants::LIFETIME).await;
        while reviews.budget.lock().take(HOME, Instant::now()) {}
        assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
        assert_eq!(reviews.check("ann", HOME, Some("b")).await, Err(PageRefusal::Busy));
    }

    /// Sixty-four pages of one user check their right in the same moment.
    #[tokio::test]
    async fn the_same_question_is_asked_seldom() {
        let (reviews, count) = reviews();
        assert_eq!(reviews.check("ann", HOME, Some("a")).await, Ok(()));
        let question = (Sha256::digest("ann").into(), Some("a".to_owned()));
        let long_ago = Instant::now().checked_sub(super::super::grants::LIFETIME).unwrap();
        reviews.grants.lock().put(question, Verdict::Allowed, long_ago);
        let all = futures::future::join_all((0..64).map(|_| reviews.check("ann", HOME, Some("a")))).await;
        assert!(all.iter().all(Result::is_ok));
        assert!(count.load(Ordering::Relaxed) <= 2 + 2 * CONCURRENCY, "{count:?}");
    }
}
