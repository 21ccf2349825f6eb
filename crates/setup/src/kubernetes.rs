//! Kubernetes: a RuntimeClass by which pods request the runtime that
//! [`crate::Engine::Containerd`] sets up on each node.

/// The manifest, for `kubectl apply`.
pub const MANIFEST: &str = "\
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: synconce
handler: synconce
";

/// Notes for the user of the manifest.
pub const NOTES: [&str; 3] = [
    "nothing was changed: apply it by `synconce setup kubernetes | kubectl apply -f -`, and take \
     it away by `kubectl delete runtimeclass synconce`",
    "each node needs `synconce setup containerd`; the Helm chart packaging/helm/synconce does \
     both, and undoes both when it is deleted",
    "a pod asks by `runtimeClassName: synconce` and the annotation `io.synconce.hold: \"true\"`",
];

/// Notes for the user who takes the manifest away.
pub const UNDO_NOTES: [&str; 2] = [
    "nothing was changed: delete the pods with `runtimeClassName: synconce`, then take the \
     RuntimeClass away by `kubectl delete runtimeclass synconce`",
    "undo each node by `synconce setup containerd --undo`; where the Helm chart set the nodes up, \
     its deletion does both",
];
