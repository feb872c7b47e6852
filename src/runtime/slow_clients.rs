//! Limits slow clients: a head that has begun must end in time, and the client must read its answer.
//!
//! hyper has one timeout for the head and for the pause before it. They must differ: a pause may be long, since a
//! client that uses a connection while the server closes it sees an error. A head may not.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

/// A connection with limits on slowness.
#[derive(Debug)]
pub(crate) struct SlowClientGuard<S> {
    stream: S,
    limit: Duration,
    activity: Arc<Activity>,
    /// Time limit of the current head, and the number of complete heads when it began.
    head: Option<(usize, Pin<Box<Sleep>>)>,
    stall: Option<Pin<Box<Sleep>>>,
}

/// What happens on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// A handshake or a request, which the client has begun at this time and may not have sent or read to its end.
    Busy(Instant),
    /// A pause between two requests, since this time.
    Idle(Instant),
}

/// The requests of a connection.
#[derive(Debug)]
pub(crate) struct Activity(Mutex<State>);

#[derive(Debug)]
struct State {
    phase: Phase,
    complete_heads: usize,
    in_flight: usize,
}

impl Default for Activity {
    /// A new connection, whose client begins a handshake.
    fn default() -> Self {
        Self(Mutex::new(State { phase: Phase::Busy(Instant::now()), complete_heads: 0, in_flight: 0 }))
    }
}

impl Activity {
    /// What happens now.
    pub(crate) fn phase(&self) -> Phase {
        self.state().phase
    }

    /// Begins a request: its head is complete.
    #[must_use]
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        let mut state = self.state();
        state.busy();
        state.complete_heads += 1;
        state.in_flight += 1;
        InFlight(self.clone())
    }

    /// The client has been sent all bytes. `head` is the number of complete heads when it began its last one.
    pub(crate) fn flushed(&self, head: Option<usize>) {
        let mut state = self.state();
        let head = head == Some(state.complete_heads);
        // A client that has only completed its handshake still owes a request.
        if !head && state.in_flight == 0 && state.complete_heads > 0 && matches!(state.phase, Phase::Busy(_)) {
            state.phase = Phase::Idle(Instant::now());
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn busy(&mut self) {
        if matches!(self.phase, Phase::Idle(_)) {
            self.phase = Phase::Busy(Instant::now());
        }
    }
}

/// A request in flight: from its complete head to its answer.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.state().in_flight -= 1;
    }
}

impl<S> SlowClientGuard<S> {
    /// Guards a stream with this time limit, for a head and for a stalled answer.
    pub(crate) const fn new(stream: S, limit: Duration, activity: Arc<Activity>) -> Self {
        Self { stream, limit, activity, head: None, stall: None }
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
        let complete = this.activity.state().complete_heads;
        this.head.take_if(|(before, _)| *before != complete);
        if let Some((_, head)) = &mut this.head
            && head.as_mut().poll(context).is_ready()
        {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the head of a request takes too long")));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        // Bytes during a request are its body, which has its own time limit.
        if this.head.is_none() && buffer.filled().len() > before {
            let mut state = this.activity.state();
            if state.in_flight == 0 {
                state.busy();
                this.head = Some((complete, Box::pin(sleep(this.limit))));
            }
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
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.activity.flushed(self.head.as_ref().map(|(before, _)| *before));
        }
        self.written(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let written = Pin::new(&mut self.stream).poll_shutdown(context);
        self.written(written, context)
    }
}
