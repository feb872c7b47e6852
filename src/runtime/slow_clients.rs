//! Limits slow clients: a head that has begun must end in time, and the client must read its answer.
//!
//! hyper has one timeout for the head and for the pause before it. They must differ: a pause may be long, since a
//! client that uses a connection while the server closes it sees an error. A head may not.

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

/// A connection with limits on slowness.
#[derive(Debug)]
pub(crate) struct SlowClientGuard<S> {
    stream: S,
    limit: Duration,
    heads: Arc<Heads>,
    /// Time limit of the current head, and the number of complete heads when it began.
    head: Option<(usize, Pin<Box<Sleep>>)>,
    stall: Option<Pin<Box<Sleep>>>,
}

/// Counts requests for the guard of their connection.
#[derive(Clone, Debug)]
pub(crate) struct Requests(Arc<Heads>);

/// A request in flight: from its complete head to its answer.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Heads>);

#[derive(Debug, Default)]
struct Heads {
    complete: AtomicUsize,
    in_flight: AtomicUsize,
}

impl Requests {
    /// Begins a request: its head is complete.
    #[must_use]
    pub(crate) fn begin(&self) -> InFlight {
        self.0.complete.fetch_add(1, Ordering::Relaxed);
        self.0.in_flight.fetch_add(1, Ordering::Relaxed);
        InFlight(self.0.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<S> SlowClientGuard<S> {
    /// Guards a stream with this time limit, for a head and for a stalled answer.
    pub(crate) fn new(stream: S, limit: Duration) -> (Self, Requests) {
        let heads = Arc::<Heads>::default();
        (Self { stream, limit, heads: heads.clone(), head: None, stall: None }, Requests(heads))
    }

    /// Fails after too long a stall. Called while a write is stalled.
    fn stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let limit = self.limit;
        let stall = self.stall.get_or_insert_with(|| Box::pin(sleep(limit)));
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the answer")))
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
        // Bytes during a request are its body, which has its own time limit.
        let answering = this.heads.in_flight.load(Ordering::Relaxed) > 0;
        if !answering && this.head.is_none() && buffer.filled().len() > before {
            this.head = Some((complete, Box::pin(sleep(this.limit))));
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
