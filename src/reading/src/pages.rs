//! Lists that are read page by page. Neither the number nor the size of the objects decides how much memory that takes.

use futures::AsyncReadExt as _;
use kube::{
    Client, Resource,
    api::{DynamicObject, ListParams, ObjectList, Request},
};

use super::kinds;
use mczk_runtime::failure::{During, Error};

/// Most objects of a page.
const MOST_OBJECTS: u32 = 64;
/// Largest answer in bytes. A page of larger objects has fewer of them. One object of etcd's limit, 1.5 MiB, fits.
const MOST_BYTES: u64 = 2 << 20;

/// A list. Each page is a read of its own.
pub struct Pages<'a> {
    client: &'a Client,
    kind: &'static str,
    path: String,
    limit: u32,
    /// Where the next page begins. `None` after the last one.
    next: Option<String>,
    remaining: Option<usize>,
}

impl<'a> Pages<'a> {
    /// The objects of a kind in a namespace, or in all.
    #[must_use]
    pub fn of(client: &'a Client, (api_version, kind): (&str, &'static str), namespace: Option<&str>) -> Self {
        let path = DynamicObject::url_path(&kinds::resource(api_version, kind), namespace);
        Self { client, kind, path, limit: MOST_OBJECTS, next: Some(String::new()), remaining: None }
    }

    /// The objects of the next page; `None` after the last one.
    ///
    /// # Errors
    /// If the API server refuses or does not answer, or one object alone is too large.
    pub async fn next(&mut self) -> Result<Option<Vec<DynamicObject>>, Error> {
        let Some(from) = self.next.clone() else { return Ok(None) };
        let from = Some(from).filter(|from| !from.is_empty());
        let text = loop {
            let params = ListParams { continue_token: from.clone(), ..ListParams::default().limit(self.limit) };
            if let Some(text) = self.read(&params).await? {
                break text;
            }
            if self.limit == 1 {
                let message = format!("listing {}s: one of them has more than {} MiB", self.kind, MOST_BYTES >> 20);
                return Err(Error::Other { category: "size", message });
            }
            self.limit = (self.limit / 4).max(1);
        };
        let page: ObjectList<DynamicObject> =
            serde_json::from_slice(&text).during(|| format!("parsing a list of {}s", self.kind))?;
        self.next = page.metadata.continue_.filter(|next| !next.is_empty());
        self.remaining = page.metadata.remaining_item_count.and_then(|rest| usize::try_from(rest).ok());
        Ok(Some(page.items))
    }

    /// Objects after the pages that were read; `None` if the API server does not count them.
    #[must_use]
    pub fn remaining(&self) -> Option<usize> {
        if self.next.is_some() { self.remaining } else { Some(0) }
    }

    /// One answer; `None` if it is too large.
    async fn read(&self, params: &ListParams) -> Result<Option<Vec<u8>>, Error> {
        let action = || format!("listing {}s", self.kind);
        let request = Request::new(self.path.as_str()).list(params).map_err(kube::Error::BuildRequest);
        let answer = self.client.request_stream(request.during(action)?).await.during(action)?;
        let mut text = Vec::new();
        let read = std::pin::pin!(answer).take(MOST_BYTES + 1).read_to_end(&mut text).await;
        let failed = |error| Error::Other { category: "connection", message: format!("{}: {error}", action()) };
        read.map_err(failed)?;
        Ok((text.len() as u64 <= MOST_BYTES).then_some(text))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Request, Response};
    use kube::client::Body;
    use serde_json::{Value, json};
    use tower::service_fn;

    use super::*;

    /// An API server with objects of these sizes in bytes, and the numbers of objects that were asked for.
    fn client(sizes: &'static [usize]) -> (Client, Arc<Mutex<Vec<usize>>>) {
        let asked = Arc::<Mutex<Vec<usize>>>::default();
        let all = asked.clone();
        let service = service_fn(move |request: Request<Body>| {
            let query = request.uri().query().unwrap_or_default().to_owned();
            let number = |name| {
                let value = query.split('&').find_map(|part| part.strip_prefix(name));
                value.map(|value| value.parse::<usize>().unwrap())
            };
            let (from, limit) = (number("continue=").unwrap_or(0), number("limit=").unwrap());
            all.lock().unwrap().push(limit);
            let until = (from + limit).min(sizes.len());
            let object = |at: usize| {
                let text = "x".repeat(sizes[at]);
                json!({ "apiVersion": "v1", "kind": "K", "metadata": { "name": at.to_string(), "namespace": "n" }, "text": text })
            };
            let items: Vec<Value> = (from..until).map(object).collect();
            let rest = sizes.len() - until;
            let more =
                if rest > 0 { json!({ "continue": until.to_string(), "remainingItemCount": rest }) } else { json!({}) };
            let body = Body::from(json!({ "metadata": more, "items": items }).to_string().into_bytes());
            std::future::ready(Ok::<_, tower::BoxError>(Response::new(body)))
        });
        (Client::new(service, "n"), asked)
    }

    async fn names(pages: &mut Pages<'_>) -> Result<Vec<String>, Error> {
        let mut names = Vec::new();
        while let Some(page) = pages.next().await? {
            names.extend(page.iter().map(kube::ResourceExt::name_any));
        }
        Ok(names)
    }

    fn expected(number: usize) -> Vec<String> {
        (0..number).map(|number| number.to_string()).collect()
    }

    #[tokio::test]
    async fn a_list_is_read_in_pages() {
        let (client, asked) = client(&[100; 150]);
        let mut pages = Pages::of(&client, ("v1", "K"), Some("n"));
        assert_eq!(pages.next().await.unwrap().unwrap().len(), 64);
        assert_eq!(pages.remaining(), Some(86));
        assert_eq!(names(&mut pages).await.unwrap().len(), 86);
        assert_eq!((pages.remaining(), &**asked.lock().unwrap()), (Some(0), &[64, 64, 64][..]));
    }

    #[tokio::test]
    async fn large_objects_come_in_smaller_pages() {
        let (client, asked) = client(&[1_000_000; 9]);
        assert_eq!(names(&mut Pages::of(&client, ("v1", "K"), None)).await.unwrap(), expected(9));
        assert_eq!(asked.lock().unwrap()[..4], [64, 16, 4, 1]);
    }

    #[tokio::test]
    async fn an_object_that_is_too_large_is_an_error() {
        let (client, _) = client(&[10, 5_000_000]);
        let error = names(&mut Pages::of(&client, ("v1", "K"), None)).await.unwrap_err();
        assert_eq!(error.to_string(), "listing Ks: one of them has more than 2 MiB");
    }
}
