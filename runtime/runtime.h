// From a container spec to a running sandbox. The create table, the spawn server, blanks, recovery.
// No event loop, no waiting: the daemon watches descriptors and calls Dispatch(). Needs root
// (CAP_SYS_ADMIN and friends in the initial user namespace).
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"
#include "cgroups/tree.h"
#include "oci/runtime_spec.h"
#include "rootfs/volume_mount.h"
#include "runtime/sandbox.h"

namespace hutch::runtime {

enum class Pools { kOff, kOn };

struct RuntimeConfig {
  std::string run_dir;    // live state: <run_dir>/sandboxes/<id>/; made, mode 0700
  std::string state_dir;  // <state_dir>/skeleton/: mount points every root gets
  std::string init_path;  // the hutch-init program; read once into a sealed memfd
  uint32_t host_id_start =
      0x70000000;  // first host uid and gid handed to sandboxes, a multiple of 65536
  uint32_t host_id_ranges = 4096;  // ranges of 65536: the most sandboxes that can live at once
  Pools pools = Pools::kOn;
  uint32_t blanks = 8;  // kept ready with Pools::kOn
};

// A volume's mount in our own mount namespace (rootfs::Volumes), by descriptor.
struct VolumeToShare {
  UniqueFd mount;
  rootfs::VolumeAccess access = rootfs::VolumeAccess::kReadWrite;
};

// What a sandbox is to be, by value.
struct CreateRequest {
  // Read: process (user, env, cwd are the defaults the daemon keeps; rlimits, no_new_privileges are
  // applied to the sandbox), root.readonly, mounts (types "tmpfs", "proc", "volume"; see
  // runtime/default_spec.h), linux_.resources, linux_.seccomp, masked and readonly paths.
  oci::Spec spec;
  std::vector<UniqueFd>
      layers;  // unpacked image layers, lowest first (rootfs::Store::OpenLayer); at least one
  uint64_t scratch_bytes = 0;               // size of all writable file systems together
  std::vector<VolumeToShare> volumes = {};  // mounts of type "volume" name them by their index
  bool wants_link = false;  // takes a blank whose namespace has a link, if there is one
};

struct RuntimeEvent {
  enum class Kind {
    kSpawned,      // sandbox `id`: agent_fd() and init() are valid, watch them
    kSpawnFailed,  // sandbox `id` could not be made (error); destroy it
    kInitExited,   // PID 1 of `id` ended with wait_status (also of sandboxes being destroyed)
    kSpawnerDied,  // the spawn server ended; a new one was started; spawner_fd() changed
  };
  Kind kind;
  std::string id = {};
  int wait_status = 0;
  std::optional<Error> error = {};
};

// One that was running when the last hutchd ended.
struct Recovered {
  std::unique_ptr<Sandbox> sandbox;                          // agent_fd() and init() are valid
  std::string saved;                                         // what SaveState stored
  std::chrono::system_clock::time_point last_activity = {};  // what NoteActivity said last
};

class Runtime {
 public:
  // Call in main before any thread. Starts the spawn server, builds the templates, self-tests one
  // CLONE_INTO_CGROUP. `tree` must outlive the result.
  static Result<std::unique_ptr<Runtime>> Start(const RuntimeConfig& config,
                                                const cgroups::Tree& tree);
  virtual ~Runtime() = default;  // destroys the blanks; leaves the sandboxes

  virtual int spawner_fd() const = 0;  // readable: call Dispatch
  virtual std::vector<RuntimeEvent> Dispatch() = 0;

  // Starts making a sandbox and returns at once. With a blank in the pool agent_fd() is valid
  // immediately (no kSpawned event then); otherwise kSpawned follows. Then ReadAgent() yields
  // kReady or kFailed; the caller keeps the deadline. kInvalidArgument, kUnsupported, kLimit (no id
  // range left), kKernel name the step; nothing is left behind on error.
  virtual Result<std::unique_ptr<Sandbox>> Begin(CreateRequest request) = 0;
  // Writes the state file that makes a sandbox survive a restart of the daemon. Call after kReady,
  // before it becomes visible.
  virtual Status SaveState(const Sandbox& sandbox, const std::string& saved) = 0;
  // Remembers when it was last active, for a later daemon: the time of its state file, so that it
  // costs one system call. SaveState sets it to now.
  virtual Status NoteActivity(const Sandbox& sandbox,
                              std::chrono::system_clock::time_point when) = 0;
  // Undoes everything Begin did. Call after init() has ended (kill first); kBadState "still busy":
  // call again in a moment.
  virtual Status Remove(Sandbox& sandbox) = 0;

  // Once at start: takes up what lives, removes completely what does not (half-made sandboxes,
  // blanks, orphaned cgroups). Blocks for at most some seconds. `removed` gets one line for each
  // thing removed.
  virtual Result<std::vector<Recovered>> Recover(std::vector<std::string>* removed) = 0;

  // Tops up the pools by what is missing (asynchronously, through Dispatch); call after creates,
  // when idle, and at start.
  virtual void Refill() = 0;
  struct PoolState {
    size_t blanks_ready = 0, blanks_wanted = 0, blanks_in_flight = 0;
    size_t links_ready = 0, links_in_flight = 0;  // blanks beside those
  };
  virtual PoolState pool_state() const = 0;
  // From now on what is made ahead has the catch of mode "allowlist" prepared: such a sandbox is
  // made 0.1 ms sooner, and a round trip on loopback costs each a microsecond more.
  virtual void ExpectCatches() = 0;
  // Sets a blank aside for the caller to put a link into its namespace; nothing when none is ready.
  // From Linked() on it is for requests that want one, and for no other; `well` false: destroyed.
  struct BlankToLink {
    std::string id;
    UniqueFd init;  // a pidfd of its first process
  };
  virtual std::optional<BlankToLink> TakeToLink() = 0;
  virtual void Linked(const std::string& id, bool well) = 0;
};

}  // namespace hutch::runtime
