//! The order in which batches of one import are committed.

use tokio::sync::oneshot;

use super::WriteError;

/// Hands out the turns of batches that are written at the same time.
#[derive(Debug, Default)]
pub struct Turns {
    last: Option<oneshot::Receiver<()>>,
}

impl Turns {
    /// The turn after the one that was drawn before.
    pub fn draw(&mut self) -> Turn {
        let (done, after) = oneshot::channel();
        Turn {
            after: self.last.replace(after),
            done: Some(done),
        }
    }
}

/// When a batch may be committed: after the one in front of it. Dropped before it was
/// passed on, it takes the turn from all that follow.
#[derive(Debug)]
pub struct Turn {
    after: Option<oneshot::Receiver<()>>,
    done: Option<oneshot::Sender<()>>,
}

impl Turn {
    /// The turn of a batch with none in front of it and none behind.
    pub(super) fn alone() -> Self {
        Self {
            after: None,
            done: None,
        }
    }

    /// Whether a batch in front of it has yet to be written.
    pub(super) fn is_to_come(&self) -> bool {
        self.after.is_some()
    }

    /// Waits for it.
    ///
    /// # Errors
    /// [`WriteError::Behind`] where it will not come.
    pub(super) async fn come(&mut self) -> Result<(), WriteError> {
        match self.after.take() {
            Some(after) => after.await.map_err(|_| WriteError::Behind),
            None => Ok(()),
        }
    }

    /// Lets the next one have it.
    pub(super) fn pass(self) {
        if let Some(done) = self.done {
            // Nobody waits where this was the last.
            let _ = done.send(());
        }
    }
}
