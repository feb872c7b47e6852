//! Limits slow clients: a head that has begun must end in time, a pause may last longer, and the client must read its
//! answer. While it does not, no further request is read.
//!
//! hyper has one timeout for the head and for the pause before it. They must differ: a pause may be long, since a
//! client that uses a connection while the server closes it sees an error. A head may not. hyper also sets its timer at
//! each request; here one timer lasts until it fires.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep, sleep_until},
};

use crate::permits::Address;

/// Requests that may follow one another without a wait. On a busy machine, the next request of a client that does wait may
/// be there before the server looks for it.
const UNAWAITED: usize = 4;

/// Time limits of a client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// For a head that has begun, and for a client that does not read its answer.
    pub(crate) busy: Duration,
    /// For a pause before a request.
    pub(crate) idle: Duration,
}

/// A connection with limits on slowness.
#[derive(Debug)]
pub(crate) struct SlowClientGuard<S> {
    stream: S,
    patience: Patience,
    activity: Arc<Activity>,
    /// The current head: the number of complete heads when it began, and when it began.
    head: Option<(usize, Instant)>,
    /// The timer of the head or of the pause. It may fire before their ends, and is then set again.
    timer: Option<Pin<Box<Sleep>>>,
    stall: Option<Pin<Box<Sleep>>>,
    /// True if a read waits for the end of a stall.
    read_waits: bool,
}

/// What happens on a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ConnectionPhase {
    /// A handshake or a request, which the client has begun at this time and may not have sent or read to its end.
    Busy(Instant),
    /// A handshake that waits for the server since this time.
    Queued(Instant),
    /// A pause between two requests, since this time.
    Idle(Instant),
}

/// The requests of a connection. Only the task of the connection changes it.
#[derive(Debug)]
pub(crate) struct Activity {
    address: Arc<Address>,
    phase: AtomicU64,
    complete_heads: AtomicUsize,
    in_flight: AtomicUsize,
    /// Number of requests since the server last waited for one.
    unawaited: AtomicUsize,
}

/// Phases are stored as the time since this moment.
static BEGIN: LazyLock<Instant> = LazyLock::new(Instant::now);

impl ConnectionPhase {
    fn store(self) -> u64 {
        let (Self::Busy(since) | Self::Queued(since) | Self::Idle(since)) = self;
        // 64 bits last for centuries.
        let nanoseconds = u64::try_from(since.saturating_duration_since(*BEGIN).as_nanos()).unwrap_or(u64::MAX);
        let kind = match self {
            Self::Busy(_) => 0,
            Self::Queued(_) => 1,
            Self::Idle(_) => IDLE,
        };
        nanoseconds << 2 | kind
    }

    fn load(stored: u64) -> Self {
        let since = *BEGIN + Duration::from_nanos(stored >> 2);
        match stored & 3 {
            0 => Self::Busy(since),
            1 => Self::Queued(since),
            _ => Self::Idle(since),
        }
    }
}

/// The last two bits of a stored [`ConnectionPhase::Idle`].
const IDLE: u64 = 2;

/// True for a stored [`ConnectionPhase::Idle`].
const fn is_idle(stored: u64) -> bool {
    stored & 3 == IDLE
}

impl Activity {
    /// A new connection from this address, whose client begins a handshake.
    pub(crate) fn new(address: Arc<Address>) -> Self {
        LazyLock::force(&BEGIN);
        let phase = ConnectionPhase::Busy(Instant::now()).store().into();
        Self { address, phase, complete_heads: 0.into(), in_flight: 0.into(), unawaited: 0.into() }
    }

    /// What happens now.
    pub(crate) fn phase(&self) -> ConnectionPhase {
        ConnectionPhase::load(self.phase.load(Ordering::Relaxed))
    }

    /// Counts a request. True if the client sends requests without waiting for answers, which Karmada never does.
    pub(crate) fn hurries(&self) -> bool {
        let unawaited = self.unawaited.load(Ordering::Relaxed);
        self.unawaited.store(unawaited + 1, Ordering::Relaxed);
        unawaited >= UNAWAITED
    }

    /// Begins a request: its head is complete.
    #[must_use]
    pub(crate) fn begin(self: &Arc<Self>) -> InFlight {
        if is_idle(self.phase.load(Ordering::Relaxed)) {
            self.busy(Instant::now());
        }
        self.complete_heads.store(self.complete_heads() + 1, Ordering::Relaxed);
        self.in_flight.store(self.in_flight() + 1, Ordering::Relaxed);
        InFlight(self.clone())
    }

    /// The client has done its part of the handshake, and waits for the server.
    pub(crate) fn queued(&self) {
        self.phase.store(ConnectionPhase::Queued(Instant::now()).store(), Ordering::Relaxed);
    }

    /// The server has done its part of the handshake, and waits for the client.
    pub(crate) fn served(&self) {
        self.phase.store(ConnectionPhase::Busy(Instant::now()).store(), Ordering::Relaxed);
    }

    /// The clients of the connection's address.
    pub(crate) fn address(&self) -> &Arc<Address> {
        &self.address
    }

    /// The client has been sent all bytes. `head` is the number of complete heads when it began its last one.
    pub(crate) fn flushed(&self, head: Option<usize>) {
        let complete = self.complete_heads();
        let pause = self.in_flight() == 0 && head != Some(complete);
        // A client that has only completed its handshake still owes a request.
        if pause && complete > 0 && !is_idle(self.phase.load(Ordering::Relaxed)) {
            self.phase.store(ConnectionPhase::Idle(Instant::now()).store(), Ordering::Relaxed);
            self.address.answered(true);
        }
    }

    /// A head begins at this time.
    fn busy(&self, now: Instant) {
        if is_idle(self.phase.load(Ordering::Relaxed)) {
            self.phase.store(ConnectionPhase::Busy(now).store(), Ordering::Relaxed);
        }
    }

    fn complete_heads(&self) -> usize {
        self.complete_heads.load(Ordering::Relaxed)
    }

    fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// A request in flight: from its complete head to its answer.
#[derive(Debug)]
pub(crate) struct InFlight(Arc<Activity>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.store(self.0.in_flight() - 1, Ordering::Relaxed);
    }
}

impl<S> SlowClientGuard<S> {
    /// Guards a stream with these time limits.
    pub(crate) const fn new(stream: S, patience: Patience, activity: Arc<Activity>) -> Self {
        Self { stream, patience, activity, head: None, timer: None, stall: None, read_waits: false }
    }

    /// Fails after too long a wait for a request. Called while a read waits.
    fn waits(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Bytes during a request are its body, which has its own time limit. The timer runs all the same: after the answer
        // hyper does not ask for bytes again until some arrive, or the timer fires.
        let in_flight = self.activity.in_flight() > 0;
        if in_flight && self.timer.as_ref().is_some_and(|timer| !timer.is_elapsed()) {
            return Poll::Pending;
        }
        if !in_flight {
            self.activity.unawaited.store(0, Ordering::Relaxed);
        }
        let (end, what) = match (self.head, self.activity.phase()) {
            _ if in_flight => (Instant::now() + self.patience.idle, "a request is in flight"),
            (Some((_, since)), _) => (since + self.patience.busy, "the head of a request takes too long"),
            (None, ConnectionPhase::Idle(since) | ConnectionPhase::Queued(since) | ConnectionPhase::Busy(since)) => {
                (since + self.patience.idle, "no request follows")
            }
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(end.into())));
        if timer.deadline() > end.into() {
            timer.as_mut().reset(end.into());
        }
        while timer.as_mut().poll(context).is_ready() {
            if Instant::now() >= end {
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, what)));
            }
            timer.as_mut().reset(end.into());
        }
        Poll::Pending
    }

    /// Fails after too long a stall. Called while a write is stalled.
    fn stalled<T>(&mut self, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        let limit = self.patience.busy;
        let address = &self.activity.address;
        let stall = self.stall.get_or_insert_with(|| {
            address.answered(false);
            Box::pin(sleep(limit))
        });
        ready!(stall.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the client does not read the answer")))
    }

    fn written<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            return self.stalled(context);
        }
        self.stall = None;
        if std::mem::take(&mut self.read_waits) {
            context.waker().wake_by_ref();
        }
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
        let in_flight = this.activity.in_flight() > 0;
        // A client that reads no answer could ask for many.
        if this.stall.is_some() && !in_flight {
            this.read_waits = true;
            return Poll::Pending;
        }
        let complete = this.activity.complete_heads();
        this.head.take_if(|(before, _)| *before != complete);
        let before = buffer.filled().len();
        if Pin::new(&mut this.stream).poll_read(context, buffer)?.is_pending() {
            return this.waits(context);
        }
        if this.head.is_none() && !in_flight && buffer.filled().len() > before {
            let now = Instant::now();
            this.activity.busy(now);
            this.head = Some((complete, now));
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
