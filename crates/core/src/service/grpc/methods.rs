//! The methods that exist, read from the descriptors: labels of metrics must not
//! come from callers, and deadlines depend on the shape of a method.
use std::collections::HashMap;
use std::sync::LazyLock;

use prost::Message as _;
use prost_types::FileDescriptorSet;

/// The label of a method that does not exist.
pub(super) const UNKNOWN: &str = "unknown";

/// Services that need no token.
const OPEN: [(&str, &[&str]); 3] = [
    ("grpc.health.v1.Health", &["Check", "Watch", "List"]),
    (
        "grpc.reflection.v1.ServerReflection",
        &["ServerReflectionInfo"],
    ),
    (
        "grpc.reflection.v1alpha.ServerReflection",
        &["ServerReflectionInfo"],
    ),
];

/// What is known about a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Method {
    /// The full name, such as `tenure.v1.JobService/SubmitJob`.
    pub(super) label: &'static str,
    /// Whether the caller must show a token.
    pub(super) open: bool,
    /// Whether the server's own limit ends the call. A stream of requests may go on.
    pub(super) limited: bool,
}

impl Method {
    const UNKNOWN: Self = Self {
        label: UNKNOWN,
        open: false,
        limited: true,
    };
}

/// By path, such as `/tenure.v1.JobService/SubmitJob`.
static METHODS: LazyLock<HashMap<String, Method>> = LazyLock::new(|| {
    let mut methods = HashMap::new();
    let mut add = |service: &str, name: &str, open: bool, limited: bool| {
        let path = format!("/{service}/{name}");
        // Leaked once for each method that exists.
        let label: &'static str = Box::leak(path[1..].to_owned().into_boxed_str());
        methods.insert(
            path,
            Method {
                label,
                open,
                limited,
            },
        );
    };
    for (service, names) in OPEN {
        for name in names {
            add(service, name, true, false);
        }
    }
    let set = FileDescriptorSet::decode(tenure_proto::FILE_DESCRIPTOR_SET).unwrap_or_default();
    for file in &set.file {
        for service in &file.service {
            let full = format!("{}.{}", file.package(), service.name());
            for method in &service.method {
                add(&full, method.name(), false, !method.client_streaming());
            }
        }
    }
    methods
});

/// The method with this path.
pub(super) fn find(path: &str) -> Method {
    METHODS.get(path).copied().unwrap_or(Method::UNKNOWN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_known_with_their_shape() {
        let submit = find("/tenure.v1.JobService/SubmitJob");
        assert_eq!(submit.label, "tenure.v1.JobService/SubmitJob");
        assert!(!submit.open && submit.limited);
        assert!(!find("/tenure.v1.FileService/UploadFile").limited);
        assert!(find("/tenure.v1.JobService/WatchJob").limited);
        assert!(find("/grpc.health.v1.Health/Check").open);
        assert_eq!(find("/tenure.v1.JobService/Nothing"), Method::UNKNOWN);
        assert_eq!(find(""), Method::UNKNOWN);
    }
}
