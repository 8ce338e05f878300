// The audit log as a file: what was recorded stays, and nothing stops the daemon.
#include "daemon/audit.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

class AuditTest : public testing::Test {
 protected:
  AuditOptions Options() const { return {.path = dir_ / "audit.db"}; }
  static AuditEntry Entry(AuditKind kind, const std::string& sandbox) {
    return {.kind = kind, .sandbox = sandbox, .name = "box", .caller = {7, 1000, 1001}};
  }
  static std::vector<std::string> Kinds(const AuditPage& page) {
    std::vector<std::string> kinds;
    for (const oci::Json& entry : page.entries) kinds.push_back(entry["kind"]);
    return kinds;
  }
  static AuditPage Page(Audit& audit, const AuditQuery& query = {}) {
    audit.Flush();
    auto page = audit.Read(query);
    EXPECT_TRUE(page.has_value()) << page.error().ToString();
    return page ? *page : AuditPage();
  }
  // SQL on the file by somebody else; the message, or "" when it worked.
  std::string Sql(const std::string& sql) const {
    sqlite3* database = nullptr;
    EXPECT_EQ(sqlite3_open((dir_ / "audit.db").c_str(), &database), SQLITE_OK);
    sqlite3_busy_timeout(database, 1000);
    const bool worked = sqlite3_exec(database, sql.c_str(), nullptr, nullptr, nullptr) == SQLITE_OK;
    const std::string message = worked ? "" : sqlite3_errmsg(database);
    sqlite3_close(database);
    return message;
  }
  TempDir dir_;
};

TEST_F(AuditTest, EntriesAreReadNewestFirstAndFiltered) {
  Audit audit(Options());
  audit.Record(Entry(AuditKind::kSandboxCreated, "sb-1"));
  audit.Record(Entry(AuditKind::kExec, "sb-1"));
  audit.Record(Entry(AuditKind::kExec, "sb-2"));
  const AuditPage all = Page(audit);
  EXPECT_EQ(Kinds(all), (std::vector<std::string>{"exec", "exec", "sandbox_created"}));
  EXPECT_EQ(all.entries[0]["sandbox"], "sb-2");
  EXPECT_EQ(all.entries[0]["caller"], (oci::Json{{"uid", 1000}, {"gid", 1001}, {"pid", 7}}));
  EXPECT_EQ(Page(audit, {.sandbox = "sb-1", .kind = AuditKind::kExec}).entries.size(), 1u);
  EXPECT_EQ(Page(audit, {.since_ms = INT64_MAX}).entries.size(), 0u);
  EXPECT_EQ(Page(audit, {.until_ms = 1}).entries.size(), 0u);
}

TEST_F(AuditTest, PagesFollowEachOtherWithoutGapOrOverlap) {
  Audit audit(Options());
  for (int i = 0; i < 25; ++i) audit.Record(Entry(AuditKind::kExec, "sb-" + std::to_string(i)));
  audit.Flush();
  int expected = 24;
  AuditQuery query{.limit = 10};
  do {
    const AuditPage page = Page(audit, query);
    for (const oci::Json& entry : page.entries)
      EXPECT_EQ(entry["sandbox"], "sb-" + std::to_string(expected--));
    query.before = page.next;
  } while (query.before != 0);
  EXPECT_EQ(expected, -1);
}

TEST_F(AuditTest, TheFileIsForItsOwnerAloneAndNobodyElsesToChange) {
  Audit audit(Options());
  audit.Record(Entry(AuditKind::kExec, "sb-1"));
  audit.Flush();
  struct stat st {};
  ASSERT_EQ(::stat((dir_ / "audit.db").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 0600u);
  EXPECT_NE(Sql("UPDATE entries SET outcome = 'forged'").find("append-only"), std::string::npos);
  EXPECT_NE(Sql("DELETE FROM entries"), "");
  EXPECT_EQ(Page(audit).entries.size(), 1u);
}

TEST_F(AuditTest, OldEntriesGoAtTheNextStart) {
  AuditEntry old = Entry(AuditKind::kExec, "sb-old");
  old.time -= std::chrono::hours(24 * 31);
  {
    AuditOptions forever = Options();
    forever.retention_days = 0;
    Audit audit(forever);
    audit.Record(old);
  }
  Audit audit(Options());
  EXPECT_EQ(Page(audit).entries.size(), 1u);
  audit.Record(Entry(AuditKind::kExec, "sb-new"));
  const AuditPage page = Page(audit);
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_EQ(page.entries[0]["sandbox"], "sb-new");
}

TEST_F(AuditTest, BeyondItsSizeTheOldestGo) {
  AuditEntry big = Entry(AuditKind::kExec, "sb-1");
  big.detail["text"] = std::string(1000, 'x');
  {
    Audit audit(Options());
    for (int i = 0; i < 5000; ++i) audit.Record(big);
  }
  AuditOptions small = Options();
  small.max_bytes = 2 << 20;
  Audit audit(small);
  audit.Record(big);
  audit.Flush();
  const AuditPage page = Page(audit, {.limit = 10000});
  EXPECT_LT(page.entries.size(), 3000u);
  EXPECT_GT(page.entries.size(), 500u);
  EXPECT_EQ(page.entries[0]["number"], 5001);
}

TEST_F(AuditTest, ADamagedFileIsMovedAsideAndSaidToBe) {
  ASSERT_TRUE(WriteFileAtomic(dir_ / "audit.db", std::string(8192, 'x'), Durability::kMemory));
  Audit audit(Options());
  const Audit::State state = audit.state();
  EXPECT_TRUE(PathExists(state.moved_aside)) << state.moved_aside;
  EXPECT_EQ(state.trouble, "");
  audit.Record(Entry(AuditKind::kExec, "sb-1"));
  EXPECT_EQ(Page(audit).entries.size(), 1u);
}

TEST_F(AuditTest, WhereNothingCanBeWrittenTheDaemonGoesOnAndCountsTheLoss) {
  Audit audit({.path = dir_ / "no/such/directory/audit.db"});
  EXPECT_NE(audit.state().trouble, "");
  audit.Record(Entry(AuditKind::kExec, "sb-1"));
  audit.Flush();
  EXPECT_EQ(audit.state().lost, 1u);
}

TEST_F(AuditTest, AFullQueueBlocksNobodyAndIsRecorded) {
  Audit audit(Options());
  audit.Record(Entry(AuditKind::kExec, "first"));
  audit.Flush();
  sqlite3* holder = nullptr;  // keeps the writer waiting
  ASSERT_EQ(sqlite3_open((dir_ / "audit.db").c_str(), &holder), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(holder, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  const auto start = std::chrono::steady_clock::now();
  for (size_t i = 0; i < 2 * kMaxAuditQueue + 100; ++i)
    audit.Record(Entry(AuditKind::kExec, "many"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
  EXPECT_GE(audit.state().lost, 100u);
  sqlite3_exec(holder, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(holder);
  audit.Flush();
  audit.Record(Entry(AuditKind::kExec, "last"));
  const AuditPage page = Page(audit, {.kind = AuditKind::kEntriesLost});
  ASSERT_EQ(page.entries.size(), 1u);
  EXPECT_EQ(page.entries[0]["detail"]["count"], audit.state().lost);
}

TEST_F(AuditTest, WhatIsCommittedOutlivesAKill) {
  auto ready = MakePipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    Audit audit(Options());
    for (int i = 0; i < 100; ++i) audit.Record(Entry(AuditKind::kExec, "sb-1"));
    audit.Flush();
    if (::write(ready->write.get(), "x", 1) != 1) ::_exit(1);
    while (true) ::pause();
  }
  char byte;
  ASSERT_EQ(::read(ready->read.get(), &byte, 1), 1);
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
  Audit audit(Options());
  EXPECT_EQ(Page(audit, {.limit = 1000}).entries.size(), 100u);
}

TEST_F(AuditTest, CommandsAndDetailsAreBounded) {
  const oci::Json cut = AuditCommand({std::string(10000, 'a'), "b"});
  ASSERT_EQ(cut.size(), 1u);
  EXPECT_EQ(cut[0].get<std::string>().size(), kMaxAuditCommandBytes);
  EXPECT_EQ(AuditCommand({"a\xff"})[0], "61ff");
  Audit audit(Options());
  AuditEntry entry = Entry(AuditKind::kExec, "sb-1");
  entry.detail["text"] = std::string(kMaxAuditDetailBytes, 'x');
  audit.Record(entry);
  EXPECT_EQ(Page(audit).entries[0]["detail"], (oci::Json{{"truncated", true}}));
}

TEST_F(AuditTest, WithoutALogThereIsNothingToRead) {
  Audit audit;
  audit.Record(Entry(AuditKind::kExec, "sb-1"));
  EXPECT_FALSE(audit.state().enabled);
  EXPECT_EQ(audit.Read({}).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace hutch::daemon
