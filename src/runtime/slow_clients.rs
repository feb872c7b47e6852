//! Keeps a connection at a pace: a head that began must come to its end in time, and an answer must be taken.
//!
//! hyper has one timeout for both the head and the pause before it. They need to differ: a pause may be long, since a
//! client that uses a connection while the server closes it sees an error, and a head must not.

use std::io;
use std::pin::Pin;
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection that is kept at a pace.
#[derive(Debug)]
pub struct SlowClientGuard<S> {
    stream: S,
    patience: Duration,
    heads: Arc<Heads>,
    /// Until when the head that began must be complete, and how many were complete when it began.
    head: Option<(usize, Pin<Box<Sleep>>)>,
    stall: Option<Pin<Box<Sleep>>>,
}

/// Tells the connection that a head is complete and a request is being answered.
#[derive(Clone, Debug)]
pub struct Pace(Arc<Heads>);

/// A request that is being answered, while it lives.
#[derive(Debug)]
pub struct InFlight(Arc<Heads>);

#[derive(Debug, Default)]
struct Heads {
    complete: AtomicUsize,
    being_answered: AtomicUsize,
}

impl Pace {
    /// Keeps `stream` at a pace of `patience` for a head, and for a stalled answer.
    pub fn keep<S>(stream: S, patience: Duration) -> (SlowClientGuard<S>, Self) {
        let heads = Arc::<Heads>::default();
        (SlowClientGuard { stream, patience, heads: heads.clone(), head: None, stall: None }, Self(heads))
    }

    /// A head is complete.
    #[must_use]
    pub fn asked(&self) -> InFlight {
        self.0.complete.fetch_add(1, Ordering::Relaxed);
        self.0.being_answered.fetch_add(1, Ordering::Relaxed);
        InFlight(self.0.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.being_answered.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> SlowClientGuard<S> {
    /// Fails if a write could not go on for too long; called while it cannot.
    fn stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let patience = self.patience;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(patience)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not take the answer")))
    }

    fn written<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            return self.stalled(context);
        }
        self.stall = None;
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for SlowClientGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let complete = this.heads.complete.load(Ordering::Relaxed);
        this.head.take_if(|(before, _)| *before != complete);
        if let Some((_, head)) = &mut this.head
            && head.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the head of a request takes too long")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        // What comes while a request is being answered is its body, which has a timeout of its own.
        let answering = this.heads.being_answered.load(Ordering::Relaxed) > 0;
        if !answering && this.head.is_none() && buffer.filled().len() > before {
            this.head = Some((complete, Box::pin(sleep(this.patience))));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for SlowClientGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.written(written, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.written(written, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_flush(context);
        self.written(written, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(written, context)
    }
}
