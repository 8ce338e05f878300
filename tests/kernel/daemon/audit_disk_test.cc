// The audit log on a disk that is full.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/file.h"
#include "daemon/audit.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

TEST(AuditDiskTest, AFullDiskLosesEntriesAndSaysSoAndGoesOnAfterwards) {
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
  TempDir dir;
  ASSERT_EQ(::mount("tmpfs", dir.path().c_str(), "tmpfs", 0, "size=1m"), 0);
  {
    Audit audit({.path = dir / "audit.db"});
    audit.Record({.kind = AuditKind::kExec, .detail = {{"n", 1}}});
    audit.Flush();
    EXPECT_EQ(audit.state().trouble, "");
    auto filler = Open(dir / "filler", O_WRONLY | O_CREAT, 0600);
    ASSERT_TRUE(filler.has_value());
    EXPECT_FALSE(WriteAll(filler->get(), std::string(1 << 20, 'x')).has_value());
    // Until the WAL needs another page than it has.
    AuditEntry big{.kind = AuditKind::kExec, .detail = {{"text", std::string(12000, 'x')}}};
    for (int i = 0; i < 20 && audit.state().lost == 0; ++i) audit.Record(big), audit.Flush();
    EXPECT_NE(audit.state().trouble, "");
    const uint64_t lost = audit.state().lost;
    EXPECT_GT(lost, 0u);
    ASSERT_EQ(::unlink((dir / "filler").c_str()), 0);
    filler->reset();
    audit.Record({.kind = AuditKind::kExec, .sandbox = "after"});
    audit.Flush();
    EXPECT_EQ(audit.state().trouble, "");
    auto page = audit.Read({.kind = AuditKind::kEntriesLost});
    ASSERT_TRUE(page.has_value());
    ASSERT_EQ(page->entries.size(), 1u);
    EXPECT_EQ(page->entries[0]["detail"]["count"], lost);
    EXPECT_EQ(audit.Read({.sandbox = "after"})->entries.size(), 1u);
  }
  EXPECT_EQ(::umount2(dir.path().c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace hutch::daemon
