//! The files that an import makes, and where the user wants them.

use std::path::{Path, PathBuf};

use tenure_proto::v1::{self, JobState};

use crate::args::ImportArgs;
use crate::client::Client;
use crate::download;
use crate::errors::Failure;
use crate::jobs::READ_REPEATS;
use crate::output::say;
use crate::places::{Place, check_distinct, check_output};

/// More than one import makes.
const FILES_PAGE: i32 = 50;

/// Where the files go.
#[derive(Debug)]
pub(super) struct Outputs {
    rejects: Option<PathBuf>,
    report: Option<PathBuf>,
}

impl Outputs {
    /// Takes the places from the options. What cannot be written, or would write over what is
    /// read, is told before anything is sent.
    pub(super) fn checked(args: &ImportArgs) -> Result<Self, Failure> {
        let place = |what, path| Place { what, path };
        let outputs = [("--rejects", &args.rejects), ("--report", &args.report)];
        let mut places = Vec::new();
        if args.file != Path::new("-") {
            places.push(place("FILE", &args.file));
        }
        if let Some(schema) = &args.schema {
            places.push(place("--schema", schema));
        }
        for (what, path) in outputs {
            if let Some(path) = path {
                if path == Path::new("-") {
                    return Err(Failure::usage(format!(
                        "{what} -: standard output has the summary; name a file"
                    )));
                }
                check_output(place(what, path))?;
                places.push(place(what, path));
            }
        }
        check_distinct(&places)?;
        Ok(Self {
            rejects: args.rejects.clone(),
            report: args.report.clone(),
        })
    }

    /// Whether any is wanted.
    pub(super) fn any(&self) -> bool {
        self.rejects.is_some() || self.report.is_some()
    }

    /// Fetches what is wanted of these files. All of it is tried.
    pub(super) async fn fetch(
        &self,
        client: &Client,
        job: &End,
        files: &[v1::File],
    ) -> Result<(), Failure> {
        let rejects = match &self.rejects {
            None => Ok(()),
            Some(path) => match newest(files, Kind::Rejects) {
                Some(file) => download::save(client, file, path).await.map(drop),
                None => no_rejects(job, newest(files, Kind::ReportJson).is_some(), path),
            },
        };
        let report = match &self.report {
            None => Ok(()),
            Some(path) => {
                if let Some(file) = newest(files, Kind::report_of(path)) {
                    download::save(client, file, path).await.map(drop)
                } else {
                    say(&left_alone("the import ended without a report", path));
                    Ok(())
                }
            }
        };
        rejects.and(report)
    }
}

/// How an import ended.
#[derive(Debug, Clone)]
pub(super) struct End {
    state: JobState,
    /// The error's code; empty: none.
    code: String,
}

impl From<&v1::Job> for End {
    fn from(job: &v1::Job) -> Self {
        let error = job.last_error.as_ref();
        Self {
            state: job.state(),
            code: error.map(|error| error.code.clone()).unwrap_or_default(),
        }
    }
}

impl End {
    /// Why there is no list of rejected rows.
    fn without_rejects(&self) -> &'static str {
        // Found out before the first row.
        const WHOLE: [&str; 2] = ["FILE_NOT_FOUND", "PAYLOAD_INVALID"];
        match self.state {
            JobState::Failed
                if self.code.starts_with("CSV_") || WHOLE.contains(&self.code.as_str()) =>
            {
                "the file was refused as a whole, no row was judged"
            }
            JobState::Cancelled => "the import was cancelled before all rows were judged",
            _ => "the import ended before all rows were judged",
        }
    }
}

/// What becomes of the place for rejected rows where there are none. What is there would have
/// been replaced: after a verdict on all rows it must not be taken for this import's.
fn no_rejects(job: &End, judged: bool, path: &Path) -> Result<(), Failure> {
    if !judged {
        say(&left_alone(job.without_rejects(), path));
        return Ok(());
    }
    let shown = path.display();
    match std::fs::remove_file(path) {
        Ok(()) => say(&format!(
            "no row was rejected: {shown} of an earlier run was removed"
        )),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            say(&format!("no row was rejected: {shown} is not written"));
        }
        Err(error) => {
            return Err(Failure::local(format!(
                "no row was rejected, and {shown} of an earlier run cannot be removed: {error}"
            )));
        }
    }
    Ok(())
}

/// Says of a file that is not written whether an older one is there.
fn left_alone(why: &str, path: &Path) -> String {
    let shown = path.display();
    if path.symlink_metadata().is_ok() {
        format!("{why}: what {shown} holds is older than this import")
    } else {
        format!("{why}: {shown} is not written")
    }
}

/// What a file of an import is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The report as a page.
    ReportHtml,
    /// The report as data.
    ReportJson,
    /// The rejected rows.
    Rejects,
}

impl Kind {
    fn report_of(path: &Path) -> Self {
        let page = path
            .extension()
            .is_some_and(|ending| ending.eq_ignore_ascii_case("html"));
        if page {
            Self::ReportHtml
        } else {
            Self::ReportJson
        }
    }

    fn is_of(self, kind: &str, content_type: &str) -> bool {
        let page = content_type.starts_with("text/html");
        match self {
            Self::ReportHtml => kind == "report" && page,
            Self::ReportJson => kind == "report" && !page,
            Self::Rejects => kind == "rejects",
        }
    }

    /// The first of these files, which are the newest first, that is of this kind.
    pub(super) fn find<'f, F>(
        self,
        files: &'f [F],
        of: impl Fn(&'f F) -> (&'f str, &'f str),
    ) -> Option<&'f F> {
        files.iter().find(|file| {
            let (kind, content_type) = of(file);
            self.is_of(kind, content_type)
        })
    }
}

fn newest(files: &[v1::File], kind: Kind) -> Option<&v1::File> {
    kind.find(files, |file| (&file.kind, &file.content_type))
}

/// The files that an import made, newest first. One that failed has no result that would name
/// them.
pub(super) async fn made(
    client: &Client,
    job_id: &str,
    user: Option<&str>,
) -> Result<Vec<v1::File>, Failure> {
    let call = |request| {
        let mut files = client.files();
        async move { files.list_files(request).await }
    };
    let request = v1::ListFilesRequest {
        page_size: FILES_PAGE,
        job_id: job_id.to_owned(),
        user_id: user.unwrap_or_default().to_owned(),
        ..v1::ListFilesRequest::default()
    };
    Ok(client.unary(READ_REPEATS, request, call).await?.files)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Verb};
    use crate::errors::Exit;

    fn checked(line: &[&str]) -> Result<Outputs, Failure> {
        let line = [&["tenure", "import"], line].concat();
        match Cli::try_parse_from(line).map(|cli| cli.verb) {
            Ok(Verb::Import(args)) => Outputs::checked(&args),
            other => panic!("{other:?}"),
        }
    }

    fn end(state: JobState, code: &str) -> End {
        End {
            state,
            code: code.to_owned(),
        }
    }

    #[test]
    fn nothing_that_is_read_is_written_over() {
        let dir = tempfile::tempdir().expect("a folder");
        let at = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
        for name in ["a.csv", "s.json"] {
            std::fs::write(at(name), "x").expect("writes");
        }
        let (file, schema, new) = (&*at("a.csv"), &*at("s.json"), &*at("new"));
        for line in [
            &[file, "--report", file][..],
            &[file, "--rejects", file],
            &[file, "--schema", schema, "--report", schema],
            &[file, "--report", new, "--rejects", new],
            &[file, "--report", &at("missing/new")],
            &[file, "--rejects", &at("")],
            &[file, "--rejects", "-"],
        ] {
            let failure = checked(line).expect_err("would be lost");
            assert_eq!(failure.exit, Exit::Usage, "{line:?}");
        }
        let other = &*at("other");
        let line = [
            file,
            "--schema",
            schema,
            "--report",
            new,
            "--rejects",
            other,
        ];
        assert!(checked(&line).expect("are four files").any());
        assert!(!checked(&["-"]).expect("nothing is written").any());
    }

    #[test]
    fn an_older_list_of_rejects_goes_only_where_all_rows_were_judged() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("rejects.csv");
        std::fs::write(&path, "old").expect("writes");
        no_rejects(&end(JobState::Failed, "CSV_ENCODING"), false, &path).expect("is told");
        assert!(path.exists());
        for _ in 0..2 {
            no_rejects(&end(JobState::Success, ""), true, &path).expect("is told");
            assert!(!path.exists());
        }
    }

    #[test]
    fn why_there_is_no_list_of_rejects_is_told() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("rejects.csv");
        let told = |state, code: &str| left_alone(end(state, code).without_rejects(), &path);
        let text = told(JobState::Failed, "CSV_COLUMN_MISSING");
        assert!(text.contains("no row was judged"), "{text}");
        assert!(text.ends_with("rejects.csv is not written"), "{text}");
        std::fs::write(&path, "old").expect("writes");
        let text = told(JobState::Failed, "DATABASE_UNAVAILABLE");
        assert!(!text.contains("no row"), "{text}");
        assert!(text.ends_with("older than this import"), "{text}");
        assert!(told(JobState::Cancelled, "").contains("cancelled"));
    }
}
