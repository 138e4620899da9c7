//! DatasetService.

use tenure_core::domain::ids::{JobId, UserId, check_text};
use tenure_core::storage::Store;
use tenure_core::storage::datasets::{self, Dataset, DatasetRow, PageSize, Place};
use tenure_core::{Code, Error, Result};
use tenure_proto::v1;
use tonic::{Request, Response, Status};
use uuid::Uuid;
use v1::dataset_service_server::DatasetService;

use crate::call::{self, Caller, READERS};
use crate::convert;
use crate::fields::Findings;
use crate::page_token::Question;

/// The data sets of a page where the caller names no number, and the most.
const DATASETS: (i32, i32) = (50, 200);
/// The rows of a page where the caller names no number, and the most.
const ROWS: (i32, i32) = (100, 1_000);
/// What the rows of a page may take, in bytes; a single row may take more.
const ROWS_BYTES: usize = 2 << 20;

/// The service.
pub(crate) struct Datasets {
    /// The database.
    pub(crate) store: Store,
}

#[tonic::async_trait]
impl DatasetService for Datasets {
    async fn list_datasets(
        &self,
        request: Request<v1::ListDatasetsRequest>,
    ) -> Result<Response<v1::ListDatasetsResponse>, Status> {
        call::unary("ListDatasets", READERS, request, async |caller, request| {
            let mut findings = Findings::default();
            let limit = page_size(&mut findings, request.page_size, DATASETS);
            let named = findings.optional_text("user_id", request.user_id);
            findings.finish()?;
            let owner = owner(&caller, named)?;
            let question =
                Question::new(["datasets", caller.principal.user.as_str(), owner.as_str()]);
            let after = question.open::<16>(&request.page_token)?;
            let after = after.map(Uuid::from_bytes);
            let page = datasets::list(&self.store, &owner, after, limit).await?;
            Ok(v1::ListDatasetsResponse {
                datasets: page.datasets.into_iter().map(dataset).collect(),
                next_page_token: page
                    .next
                    .map(|after| question.seal(after.as_bytes()))
                    .unwrap_or_default(),
            })
        })
        .await
    }

    async fn list_rows(
        &self,
        request: Request<v1::ListRowsRequest>,
    ) -> Result<Response<v1::ListRowsResponse>, Status> {
        call::unary("ListRows", READERS, request, async |caller, request| {
            let mut findings = Findings::default();
            let limit = page_size(&mut findings, request.page_size, ROWS);
            findings.check("dataset", check_text(&request.dataset));
            let named = findings.optional_text("user_id", request.user_id);
            let import = import(&mut findings, &request.job_id);
            findings.finish()?;
            let owner = owner(&caller, named)?;
            let question = Question::new([
                "rows",
                caller.principal.user.as_str(),
                owner.as_str(),
                &request.dataset,
                &request.job_id,
            ]);
            let after = question.open(&request.page_token)?.map(place);
            let id = datasets::find(&self.store, &owner, &request.dataset).await?;
            let id = id.ok_or_else(not_found)?;
            let size = PageSize {
                rows: limit,
                bytes: ROWS_BYTES,
            };
            let page = datasets::rows(&self.store, id, import, after, size).await?;
            Ok(v1::ListRowsResponse {
                rows: page.rows.into_iter().map(row).collect(),
                next_page_token: page
                    .next
                    .map(|after| question.seal(&cursor(after)))
                    .unwrap_or_default(),
            })
        })
        .await
    }

    async fn delete_dataset(
        &self,
        request: Request<v1::DeleteDatasetRequest>,
    ) -> Result<Response<v1::DeleteDatasetResponse>, Status> {
        call::unary(
            "DeleteDataset",
            READERS,
            request,
            async |caller, request| {
                let mut findings = Findings::default();
                findings.check("dataset", check_text(&request.dataset));
                let named = findings.optional_text("user_id", request.user_id);
                findings.finish()?;
                let owner = owner(&caller, named)?;
                if !datasets::remove(&self.store, &owner, &request.dataset).await? {
                    return Err(not_found());
                }
                tracing::info!(
                    actor = caller.principal.user.as_str(),
                    owner = owner.as_str(),
                    "a data set is removed"
                );
                Ok(v1::DeleteDatasetResponse {})
            },
        )
        .await
    }
}

fn not_found() -> Error {
    Error::new(
        Code::DatasetNotFound,
        "there is no data set of this name that you may see; ListDatasets has the names",
    )
}

fn page_size(findings: &mut Findings, asked: i32, (default, most): (i32, i32)) -> usize {
    if asked < 0 {
        findings.add("page_size", "must not be negative");
    }
    let size = if asked == 0 { default } else { asked.min(most) };
    size.unsigned_abs() as usize
}

fn import(findings: &mut Findings, job_id: &str) -> Option<JobId> {
    if job_id.is_empty() {
        return None;
    }
    let import = job_id.parse().ok();
    if import.is_none() {
        findings.add(
            "job_id",
            "must be the id of an import's job, a hyphenated UUID in lower case",
        );
    }
    import
}

/// Whose data sets are meant: the caller's own, unless it may see the other's.
fn owner(caller: &Caller, named: Option<String>) -> Result<UserId> {
    let Some(named) = named else {
        let own = caller.principal.user.as_str().to_owned();
        return Ok(UserId::from_stored(own));
    };
    let named = UserId::from_stored(named);
    if caller.may_see(&named) {
        Ok(named)
    } else {
        Err(Error::new(
            Code::PermissionDenied,
            "only operators and services may see or remove the data sets of another user; leave user_id out",
        ))
    }
}

fn cursor((import, line): Place) -> [u8; 24] {
    let mut bytes = [0; 24];
    bytes[..16].copy_from_slice(import.uuid().as_bytes());
    bytes[16..].copy_from_slice(&line.to_be_bytes());
    bytes
}

fn place(cursor: [u8; 24]) -> Place {
    let (mut import, mut line) = ([0; 16], [0; 8]);
    import.copy_from_slice(&cursor[..16]);
    line.copy_from_slice(&cursor[16..]);
    (JobId(Uuid::from_bytes(import)), i64::from_be_bytes(line))
}

fn dataset(dataset: Dataset) -> v1::Dataset {
    v1::Dataset {
        dataset_id: dataset.dataset_id.to_string(),
        user_id: dataset.user_id,
        name: dataset.name,
        rows: dataset.rows,
        imports: dataset.imports,
        create_time: Some(convert::time(dataset.created_at)),
        update_time: Some(convert::time(dataset.updated_at)),
    }
}

fn row(row: DatasetRow) -> v1::Row {
    v1::Row {
        job_id: row.job_id.to_string(),
        line: row.line,
        data: row.data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_from_its_cursor() {
        for line in [0, 2, i64::MAX] {
            let place_of = (JobId::new(), line);
            assert_eq!(place(cursor(place_of)), place_of);
        }
    }
}
