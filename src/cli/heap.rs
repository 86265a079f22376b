//! The heap of a program that runs for months beside the pods of a node.

/// One arena for all threads, in place of glibc's one for each: what a request has freed serves the
/// next one, whichever thread it comes on. Requests are serial, so nobody waits for its lock.
///
/// To be called before there is a second thread. Does nothing where the C library is not glibc.
pub(super) fn share() {
    #[cfg(target_env = "gnu")]
    {
        #[expect(unsafe_code, reason = "the C library has no other way to be told")]
        // SAFETY: it takes two numbers, touches no memory of ours, and no other thread allocates
        // yet. A refusal leaves glibc's default, which is no worse than not asking.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
        }
    }
}
