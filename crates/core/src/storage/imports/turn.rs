//! The order in which batches of one import are committed.

use tokio::sync::oneshot::{self, error::TryRecvError};

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

    /// Whether it has come: no batch in front of it has yet to be written.
    ///
    /// # Errors
    /// [`WriteError::Behind`] where it will not come.
    pub(super) fn has_come(&mut self) -> Result<bool, WriteError> {
        let Some(after) = &mut self.after else {
            return Ok(true);
        };
        match after.try_recv() {
            Ok(()) => {
                self.after = None;
                Ok(true)
            }
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Closed) => Err(WriteError::Behind),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_turn_comes_when_the_one_before_is_passed_on_and_never_when_it_is_dropped() {
        let mut turns = Turns::default();
        let (mut first, mut second, mut third) = (turns.draw(), turns.draw(), turns.draw());
        assert!(matches!(first.has_come(), Ok(true)));
        assert!(matches!(second.has_come(), Ok(false)));
        first.pass();
        assert!(matches!(second.has_come(), Ok(true)));
        assert!(matches!(second.come().await, Ok(())));
        assert!(matches!(third.has_come(), Ok(false)));
        drop(second);
        assert!(matches!(third.has_come(), Err(WriteError::Behind)));
    }
}
