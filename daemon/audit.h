// Who did what to which sandbox: an append-only log in <state-dir>/audit.db (SQLite, WAL, mode
// 0600) that outlives sandboxes and the daemon. A thread of its own writes it in batches; recording
// never waits for the disk.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "daemon/message.h"
#include "oci/json.h"

struct sqlite3;

namespace hutch::daemon {

enum class AuditKind : uint8_t {
  kSandboxCreated,
  kRelaxation,  // a sandbox confined less than by default
  kExec,
  kProcessStarted,
  kProcessExited,
  kFileWrite,
  kFileDelete,
  kDenial,         // a request that was refused
  kNetworkDenied,  // from inside: a name, an address, a request
  kNetworkChanged,
  kSandboxPaused,
  kSandboxResumed,
  kSandboxEnded,
  kImageImported,
  kImageDeleted,
  kImagePulled,
  kVolumeCreated,
  kVolumeChanged,  // it grew
  kVolumeRemoved,
  kVolumeExported,  // its files went out of it, by an archive or a copy
  kVolumeImported,
  kDaemonStarted,
  kDaemonStopped,
  kConfigReloaded,
  kEntriesLost,  // the queue was full: detail.count of them are missing here
  kSandboxSnapshot,
  kSandboxForked,
  kSandboxStopped,
  kSandboxStarted,
};
const char* AuditKindName(AuditKind kind);
std::optional<AuditKind> ParseAuditKind(std::string_view name);

struct AuditEntry {
  AuditKind kind = AuditKind::kDenial;
  std::string sandbox = {}, name = {};  // id, and name at that time; may be empty
  Peer caller = Peer();                 // pid 0 and no token: the daemon itself
  std::string outcome = "ok";           // or the code of the error
  oci::Json detail = oci::Json::object();
  WallTime time = std::chrono::system_clock::now();
};

struct AuditQuery {
  std::string sandbox = {};  // empty: any
  std::optional<AuditKind> kind = {};
  std::optional<int64_t> since_ms = {}, until_ms = {};  // Unix time; until is not included
  uint64_t limit = 100;
  uint64_t before = 0;  // entries older than this number; 0: from the newest
};
struct AuditPage {
  std::vector<oci::Json> entries;  // newest first
  uint64_t next = 0;               // `before` of the next page; 0: there is none
};

struct AuditOptions {
  std::string path;  // of the database
  uint64_t retention_days = 30;
  uint64_t max_bytes = 0;  // of the database; older entries go first; 0: no bound
};

class Audit {
 public:
  // Records nothing.
  Audit() = default;
  // Opens or makes the database and starts its thread. A database that cannot be used is moved
  // aside and replaced; where that fails as well nothing is recorded, and trouble() says why. Never
  // fails, so that the daemon starts.
  explicit Audit(AuditOptions options);
  ~Audit();  // writes what is queued

  // Never blocks. Beyond kMaxAuditQueue the entry is lost, and the loss is recorded.
  void Record(AuditEntry entry);
  // Reads what has been committed. kUnavailable when there is no log; kKernel and kNoSpace as the
  // disk has it. For worker threads: blocks.
  Result<AuditPage> Read(const AuditQuery& query);
  void Flush();  // blocks until everything recorded so far is committed or lost; for tests

  struct State {
    bool enabled = false;
    std::string trouble;      // why nothing is recorded just now, or ""
    std::string moved_aside;  // where an unusable database went, or ""
    uint64_t lost = 0;        // entries since the start
  };
  State state() const;

 private:
  using Database = std::unique_ptr<sqlite3, int (*)(sqlite3*)>;

  Status OpenOrReplace();
  void Run();
  Status Write(const std::deque<AuditEntry>& batch, uint64_t lost);
  Status Prune();
  void SetTrouble(const std::string& trouble);

  AuditOptions options_;
  Database writer_{nullptr, nullptr};  // the thread's
  bool pruning_ = false;               // the thread's: what the trigger asks for
  mutable std::mutex mutex_;
  std::condition_variable wake_, written_;
  std::deque<AuditEntry> queue_;
  size_t in_hand_ = 0;  // taken out of the queue and not committed yet
  uint64_t lost_ = 0, lost_unrecorded_ = 0;
  std::string trouble_, moved_aside_;
  bool stopping_ = false;
  std::thread thread_;
};

// The log's bounded form of a command line.
oci::Json AuditCommand(const std::vector<std::string>& args);

}  // namespace hutch::daemon
