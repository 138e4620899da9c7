//! DeadLetterService: for operators and administrators alone.

use tenure_core::auth::{Principal, Role};
use tenure_core::error::chain;
use tenure_core::storage::Store;
use tenure_core::{Code, Error, Result};
use tenure_proto::v1::dead_letter_service_server::DeadLetterService;
use tenure_proto::v1::{
    GetDeadLetterRequest, GetDeadLetterResponse, ListDeadLettersRequest, ListDeadLettersResponse,
};
use tonic::{Request, Response, Status};

use crate::{convert, page_token};

/// The service on a database.
///
/// It takes its caller from the extensions of a request, where the port puts the
/// [`Principal`] of a verified token.
#[derive(Clone, Debug)]
pub struct DeadLetters {
    store: Store,
}

impl DeadLetters {
    /// The service on this database.
    pub fn new(store: Store) -> Self {
        Self { store }
    }

    async fn list(&self, request: ListDeadLettersRequest) -> Result<ListDeadLettersResponse> {
        let size = convert::page_size(request.page_size)?;
        let filter = convert::filter(&request)?;
        let after = page_token::decode(&request.page_token, &filter)?;
        let page = self.store.list_dead_letters(&filter, after, size).await?;
        Ok(ListDeadLettersResponse {
            dead_letters: page.letters.into_iter().map(convert::dead_letter).collect(),
            next_page_token: page
                .next
                .map(|cursor| page_token::encode(cursor, &filter))
                .unwrap_or_default(),
        })
    }

    async fn get(&self, request: GetDeadLetterRequest) -> Result<GetDeadLetterResponse> {
        let id = convert::letter_id(&request.dead_letter_id)?;
        let letter = self.store.get_dead_letter(id).await?;
        Ok(GetDeadLetterResponse {
            dead_letter: Some(convert::dead_letter(letter)),
        })
    }
}

#[tonic::async_trait]
impl DeadLetterService for DeadLetters {
    async fn list_dead_letters(
        &self,
        request: Request<ListDeadLettersRequest>,
    ) -> Result<Response<ListDeadLettersResponse>, Status> {
        let message = admitted(request)?;
        self.list(message).await.map(Response::new).map_err(refusal)
    }

    async fn get_dead_letter(
        &self,
        request: Request<GetDeadLetterRequest>,
    ) -> Result<Response<GetDeadLetterResponse>, Status> {
        let message = admitted(request)?;
        self.get(message).await.map(Response::new).map_err(refusal)
    }
}

/// The message of a caller who may look at dead letters.
fn admitted<T>(request: Request<T>) -> Result<T, Status> {
    request
        .extensions()
        .get::<Principal>()
        .ok_or_else(|| Error::new(Code::Unauthenticated, "the call has no verified caller"))
        .and_then(|caller| caller.require(&[Role::Operator, Role::Admin]))
        .map_err(refusal)?;
    Ok(request.into_inner())
}

/// What the caller reads; the cause stays here, in the log.
fn refusal(error: Error) -> Status {
    if error.code() == Code::Internal {
        tracing::error!(error = chain(&error), "a call failed");
    } else if error.is_temporary() {
        tracing::warn!(error = chain(&error), "a call was refused for now");
    }
    error.to_status()
}
