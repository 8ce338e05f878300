#include "daemon/audit.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "daemon/limits.h"

namespace hutch::daemon {
namespace {

constexpr int kBusyMs = 5000;
constexpr auto kPruneInterval = std::chrono::minutes(10);
constexpr uint64_t kPruneStep = 1000;  // entries at once when there is no room
constexpr uint64_t kMillisecondsADay = 86'400'000;

// Only the pruning connection may delete: the trigger asks a function that no other connection has
// as true. Whoever can open the file as root can of course do anything.
constexpr char kSchema[] = R"sql(
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE IF NOT EXISTS entries(
  number INTEGER PRIMARY KEY AUTOINCREMENT, time_ms INTEGER NOT NULL, kind TEXT NOT NULL,
  sandbox TEXT NOT NULL, name TEXT NOT NULL, uid INTEGER NOT NULL, gid INTEGER NOT NULL,
  pid INTEGER NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_sandbox ON entries(sandbox, number);
CREATE INDEX IF NOT EXISTS by_kind ON entries(kind, number);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON entries
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON entries WHEN NOT hutch_pruning()
  BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
)sql";

constexpr char kInsert[] =
    "INSERT INTO entries(time_ms, kind, sandbox, name, uid, gid, pid, outcome, detail, token) "
    "VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)";
constexpr char kSelect[] =
    "SELECT number, time_ms, kind, sandbox, name, uid, gid, pid, outcome, detail, token FROM "
    "entries "
    "WHERE (?1 = '' OR sandbox = ?1) AND (?2 = '' OR kind = ?2) AND time_ms >= ?3 AND "
    "time_ms < ?4 AND number < ?5 ORDER BY number DESC LIMIT ?6";

struct KindRow {
  AuditKind kind;
  const char* name;
};
constexpr KindRow kKinds[] = {
    {AuditKind::kSandboxCreated, "sandbox_created"},
    {AuditKind::kRelaxation, "relaxation"},
    {AuditKind::kExec, "exec"},
    {AuditKind::kProcessStarted, "process_started"},
    {AuditKind::kProcessExited, "process_exited"},
    {AuditKind::kFileWrite, "file_write"},
    {AuditKind::kFileDelete, "file_delete"},
    {AuditKind::kDenial, "denial"},
    {AuditKind::kNetworkDenied, "network_denied"},
    {AuditKind::kNetworkChanged, "network_changed"},
    {AuditKind::kSandboxPaused, "sandbox_paused"},
    {AuditKind::kSandboxResumed, "sandbox_resumed"},
    {AuditKind::kSandboxEnded, "sandbox_ended"},
    {AuditKind::kImageImported, "image_imported"},
    {AuditKind::kImagePulled, "image_pulled"},
    {AuditKind::kImageDeleted, "image_deleted"},
    {AuditKind::kVolumeCreated, "volume_created"},
    {AuditKind::kVolumeChanged, "volume_changed"},
    {AuditKind::kVolumeRemoved, "volume_removed"},
    {AuditKind::kVolumeExported, "volume_exported"},
    {AuditKind::kVolumeImported, "volume_imported"},
    {AuditKind::kDaemonStarted, "daemon_started"},
    {AuditKind::kDaemonStopped, "daemon_stopped"},
    {AuditKind::kConfigReloaded, "config_reloaded"},
    {AuditKind::kEntriesLost, "entries_lost"},
    {AuditKind::kSandboxSnapshot, "sandbox_snapshot"},
    {AuditKind::kSandboxForked, "sandbox_forked"},
    {AuditKind::kSandboxStopped, "sandbox_stopped"},
    {AuditKind::kSandboxStarted, "sandbox_started"},
};

int64_t Milliseconds1970(WallTime time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

Error DatabaseError(sqlite3* database, const std::string& what) {
  const int rc = sqlite3_errcode(database) & 0xff;
  const Code code = rc == SQLITE_FULL                             ? Code::kNoSpace
                    : rc == SQLITE_CORRUPT || rc == SQLITE_NOTADB ? Code::kCorrupt
                                                                  : Code::kKernel;
  return Error{.code = code, .what = what + ": " + sqlite3_errmsg(database)};
}

Status Execute(sqlite3* database, const std::string& sql) {
  if (sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK)
    return OkStatus();
  return DatabaseError(database, "audit log");
}

class Statement {
 public:
  static Result<Statement> Prepare(sqlite3* database, const char* sql) {
    Statement statement(database);
    if (sqlite3_prepare_v2(database, sql, -1, &statement.statement_, nullptr) != SQLITE_OK)
      return DatabaseError(database, "audit log");
    return statement;
  }
  Statement(Statement&& other) noexcept
      : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}
  ~Statement() { sqlite3_finalize(statement_); }

  void Bind(int at, int64_t value) { sqlite3_bind_int64(statement_, at, value); }
  void Bind(int at, const std::string& value) {
    sqlite3_bind_text(statement_, at, value.data(), static_cast<int>(value.size()),
                      SQLITE_TRANSIENT);
  }
  // Whether there is a row.
  Result<bool> Step() {
    const int rc = sqlite3_step(statement_);
    if (rc == SQLITE_ROW || rc == SQLITE_DONE) return rc == SQLITE_ROW;
    return DatabaseError(database_, "audit log");
  }
  void Reset() { sqlite3_reset(statement_); }
  int64_t Int(int column) const { return sqlite3_column_int64(statement_, column); }
  std::string Text(int column) const {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
    return text == nullptr
               ? std::string()
               : std::string(text, static_cast<size_t>(sqlite3_column_bytes(statement_, column)));
  }

 private:
  explicit Statement(sqlite3* database) : database_(database) {}
  sqlite3* database_;
  sqlite3_stmt* statement_ = nullptr;
};

void IsPruning(sqlite3_context* context, int, sqlite3_value**) {
  sqlite3_result_int(context, *static_cast<const bool*>(sqlite3_user_data(context)) ? 1 : 0);
}

Result<std::unique_ptr<sqlite3, int (*)(sqlite3*)>> OpenDatabase(const std::string& path,
                                                                 int flags) {
  sqlite3* raw = nullptr;
  const int rc = sqlite3_open_v2(path.c_str(), &raw, flags | SQLITE_OPEN_NOFOLLOW, nullptr);
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> database(raw, sqlite3_close_v2);
  if (rc != SQLITE_OK) return DatabaseError(raw, "open " + path);
  sqlite3_busy_timeout(raw, kBusyMs);
  return database;
}

Status CheckSound(sqlite3* database) {
  ASSIGN_OR_RETURN(Statement check, Statement::Prepare(database, "PRAGMA quick_check(1)"));
  ASSIGN_OR_RETURN(const bool row, check.Step());
  if (row && check.Text(0) == "ok") return OkStatus();
  return Error{.code = Code::kCorrupt, .what = "the audit log is damaged"};
}

// Which logs of before the TCP listener have not.
Status AddTokenColumn(sqlite3* database) {
  ASSIGN_OR_RETURN(
      Statement look,
      Statement::Prepare(database,
                         "SELECT 1 FROM pragma_table_info('entries') WHERE name = 'token'"));
  ASSIGN_OR_RETURN(const bool there, look.Step());
  if (there) return OkStatus();
  return Execute(database, "ALTER TABLE entries ADD COLUMN token TEXT NOT NULL DEFAULT ''");
}

oci::Json EntryJson(const Statement& row) {
  auto detail = oci::ParseJson(row.Text(9));
  const WallTime time{std::chrono::milliseconds(row.Int(1))};
  oci::Json json = {{"number", row.Int(0)},
                    {"time", FormatRfc3339(time)},
                    {"kind", row.Text(2)},
                    {"sandbox", row.Text(3)},
                    {"name", row.Text(4)},
                    {"outcome", row.Text(8)},
                    {"detail", detail ? *detail : oci::Json::object()}};
  for (const char* key : {"sandbox", "name"})
    if (json[key] == "") json[key] = nullptr;
  const std::string token = row.Text(10);
  json["caller"] = !token.empty() ? oci::Json{{"token", token}}
                   : row.Int(7) == 0
                       ? oci::Json()
                       : oci::Json{{"uid", row.Int(5)}, {"gid", row.Int(6)}, {"pid", row.Int(7)}};
  return json;
}

std::string DetailText(const oci::Json& detail) {
  std::string text = oci::PrintJson(detail);
  return text.size() <= kMaxAuditDetailBytes ? text : R"({"truncated":true})";
}

}  // namespace

const char* AuditKindName(AuditKind kind) {
  for (const KindRow& row : kKinds)
    if (row.kind == kind) return row.name;
  CHECK(false);
}

std::optional<AuditKind> ParseAuditKind(std::string_view name) {
  for (const KindRow& row : kKinds)
    if (row.name == name) return row.kind;
  return std::nullopt;
}

oci::Json AuditCommand(const std::vector<std::string>& args) {
  oci::Json list = oci::Json::array();
  size_t left = kMaxAuditCommandBytes;
  for (const std::string& arg : args) {
    std::string shown = arg.substr(0, left);
    for (int i = 0; i < 3 && left < arg.size() && !IsUtf8(shown); ++i)
      shown.pop_back();  // a character that was cut in two
    list.push_back(IsUtf8(shown) ? shown : HexEncode(shown));
    left -= std::min(left, arg.size());
    if (left == 0) break;
  }
  return list;
}

Audit::Audit(AuditOptions options) : options_(std::move(options)) {
  const Status opened = OpenOrReplace();
  if (!opened.has_value()) SetTrouble(opened.error().ToString());
  thread_ = std::thread([this] { Run(); });
}

Audit::~Audit() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Status Audit::OpenOrReplace() {
  const std::string& path = options_.path;
  for (const bool again : {false, true}) {
    Status status = OkStatus();
    {
      // Before SQLite makes it with the process's umask.
      auto file = Open(path, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
      status = file ? OkStatus() : Status(std::move(file).error());
    }
    if (status) {
      auto database = OpenDatabase(path, SQLITE_OPEN_READWRITE);
      if (database) {
        sqlite3_create_function(database->get(), "hutch_pruning", 0, SQLITE_UTF8, &pruning_,
                                IsPruning, nullptr, nullptr);
        status = CheckSound(database->get());
        if (status) status = Execute(database->get(), kSchema);
        if (status) status = AddTokenColumn(database->get());
        if (status) writer_ = std::move(*database);
      } else {
        status = std::move(database).error();
      }
    }
    if (status || again) return status;
    if (status.error().code == Code::kNoSpace) return status;
    const std::string aside = path + ".unusable-" + std::to_string(::time(nullptr));
    Log(LogLevel::kError, "the audit log cannot be used and is begun anew",
        {{"error", status.error().ToString()}, {"moved_to", aside}});
    if (::rename(path.c_str(), aside.c_str()) != 0) return status;
    for (const char* suffix : {"-wal", "-shm"})
      ::rename((path + suffix).c_str(), (aside + suffix).c_str());
    moved_aside_ = aside;
  }
  return OkStatus();
}

void Audit::SetTrouble(const std::string& trouble) {
  const std::lock_guard lock(mutex_);
  if (trouble_ == trouble) return;
  trouble_ = trouble;
  if (trouble.empty())
    Log(LogLevel::kInfo, "the audit log is written again");
  else
    Log(LogLevel::kError, "the audit log cannot be written", {{"error", trouble}});
}

void Audit::Record(AuditEntry entry) {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    if (queue_.size() >= kMaxAuditQueue) {
      ++lost_, ++lost_unrecorded_;
      return;
    }
    queue_.push_back(std::move(entry));
  }
  wake_.notify_one();
}

void Audit::Run() {
  auto pruned = std::chrono::steady_clock::time_point();
  while (true) {
    std::deque<AuditEntry> batch;
    uint64_t lost = 0;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      batch.swap(queue_);
      in_hand_ = batch.size();
      lost = std::exchange(lost_unrecorded_, 0);
    }
    const Status written = Write(batch, lost);
    SetTrouble(written ? "" : written.error().ToString());
    if (written && std::chrono::steady_clock::now() - pruned > kPruneInterval) {
      pruned = std::chrono::steady_clock::now();
      IgnoreError(Prune(), "tried again later; what cannot be written then says so");
    }
    const std::lock_guard lock(mutex_);
    in_hand_ = 0;
    if (!written) lost_ += batch.size(), lost_unrecorded_ += batch.size() + lost;
    written_.notify_all();
  }
}

// One transaction: all of a batch or nothing.
Status Audit::Write(const std::deque<AuditEntry>& batch, uint64_t lost) {
  sqlite3* database = writer_.get();
  if (database == nullptr)
    return Error{.code = Code::kUnavailable, .what = "there is no usable audit log"};
  RETURN_IF_ERROR(Execute(database, "BEGIN IMMEDIATE"));
  const auto insert = [&]() -> Status {
    ASSIGN_OR_RETURN(Statement row, Statement::Prepare(database, kInsert));
    const auto add = [&](const AuditEntry& entry) -> Status {
      row.Reset();
      row.Bind(1, Milliseconds1970(entry.time));
      row.Bind(2, std::string(AuditKindName(entry.kind)));
      row.Bind(3, entry.sandbox);
      row.Bind(4, entry.name);
      row.Bind(5, int64_t{entry.caller.uid});
      row.Bind(6, int64_t{entry.caller.gid});
      row.Bind(7, int64_t{entry.caller.pid});
      row.Bind(8, entry.outcome);
      row.Bind(9, DetailText(entry.detail));
      row.Bind(10, entry.caller.token);
      ASSIGN_OR_RETURN([[maybe_unused]] const bool more, row.Step());
      return OkStatus();
    };
    if (lost > 0)
      RETURN_IF_ERROR(add({.kind = AuditKind::kEntriesLost, .detail = {{"count", lost}}}));
    for (const AuditEntry& entry : batch) RETURN_IF_ERROR(add(entry));
    return OkStatus();
  };
  Status status = insert();
  if (status) status = Execute(database, "COMMIT");
  if (!status) IgnoreError(Execute(database, "ROLLBACK"), "there may be nothing to roll back");
  return status;
}

Status Audit::Prune() {
  sqlite3* database = writer_.get();
  pruning_ = true;
  const auto prune = [&]() -> Status {
    const int64_t oldest = Milliseconds1970(std::chrono::system_clock::now()) -
                           static_cast<int64_t>(options_.retention_days * kMillisecondsADay);
    if (options_.retention_days > 0)
      RETURN_IF_ERROR(
          Execute(database, "DELETE FROM entries WHERE time_ms < " + std::to_string(oldest)));
    while (options_.max_bytes > 0) {
      ASSIGN_OR_RETURN(Statement size,
                       Statement::Prepare(database,
                                          "SELECT (page_count - freelist_count) * page_size FROM "
                                          "pragma_page_count, pragma_freelist_count, "
                                          "pragma_page_size"));
      ASSIGN_OR_RETURN(const bool row, size.Step());
      if (!row || static_cast<uint64_t>(size.Int(0)) <= options_.max_bytes) break;
      const int before = sqlite3_total_changes(database);
      RETURN_IF_ERROR(
          Execute(database,
                  "DELETE FROM entries WHERE number IN (SELECT number FROM entries ORDER BY "
                  "number LIMIT " +
                      std::to_string(kPruneStep) + ")"));
      if (sqlite3_total_changes(database) == before) break;
    }
    return Execute(database, "PRAGMA incremental_vacuum");
  };
  Status status = prune();
  pruning_ = false;
  return status;
}

void Audit::Flush() {
  std::unique_lock lock(mutex_);
  written_.wait(lock, [this] { return queue_.empty() && in_hand_ == 0; });
}

Result<AuditPage> Audit::Read(const AuditQuery& query) {
  if (options_.path.empty())
    return Error{.code = Code::kUnavailable,
                 .what = "no audit log is kept",
                 .hint = "\"audit\": \"on\" in the configuration"};
  ASSIGN_OR_RETURN(const auto database, OpenDatabase(options_.path, SQLITE_OPEN_READONLY));
  ASSIGN_OR_RETURN(Statement select, Statement::Prepare(database.get(), kSelect));
  select.Bind(1, query.sandbox);
  select.Bind(2, std::string(query.kind ? AuditKindName(*query.kind) : ""));
  select.Bind(3, query.since_ms.value_or(INT64_MIN));
  select.Bind(4, query.until_ms.value_or(INT64_MAX));
  select.Bind(5, query.before == 0 ? INT64_MAX : static_cast<int64_t>(query.before));
  select.Bind(6, static_cast<int64_t>(query.limit + 1));  // one more tells whether there is more
  AuditPage page;
  while (true) {
    ASSIGN_OR_RETURN(const bool row, select.Step());
    if (!row) return page;
    if (page.entries.size() == query.limit) {
      page.next = page.entries.back()["number"].get<uint64_t>();
      return page;
    }
    page.entries.push_back(EntryJson(select));
  }
}

Audit::State Audit::state() const {
  const std::lock_guard lock(mutex_);
  return State{.enabled = thread_.joinable(),
               .trouble = trouble_,
               .moved_aside = moved_aside_,
               .lost = lost_};
}

}  // namespace hutch::daemon
