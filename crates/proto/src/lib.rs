//! The generated gRPC code of Tenure, and nothing else.
#![allow(missing_docs, unreachable_pub, clippy::all, clippy::pedantic)]

// The generated code refers to other packages by their position in this tree.
mod google {
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}
mod tenure {
    pub mod v1 {
        tonic::include_proto!("tenure.v1");
    }
}

pub use google::rpc;
pub use tenure::v1;

/// The descriptors of all files, for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] =
    include_bytes!(concat!(env!("OUT_DIR"), "/tenure_descriptor.bin"));
