// Requests for snapshots, forks and diffs, as far as they go without a kernel.
#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

class SnapshotsTest : public DaemonTest {};

TEST_F(SnapshotsTest, ForksAreBounded) {
  const std::string path = "/v1/sandboxes/" + Create() + "/fork";
  for (const uint64_t count : {uint64_t{0}, uint64_t{kMaxForks + 1}}) {
    const auto answer = Call("POST", path, R"({"count":)" + std::to_string(count) + "}");
    EXPECT_EQ(answer->status(), 400);
    EXPECT_EQ(answer->json()["error"]["field"], "count");
  }
}

TEST_F(SnapshotsTest, DiffsAreBounded) {
  const std::string path = "/v1/sandboxes/" + Create() + "/diff?limit=";
  for (const uint64_t limit : {uint64_t{0}, uint64_t{kMaxDiffChanges + 1}})
    EXPECT_EQ(Call("GET", path + std::to_string(limit))->status(), 400);
}

TEST_F(SnapshotsTest, ForksThatCannotFitAreRefusedBeforeAnythingIsDone) {
  config_.max_sandboxes = 3;
  const std::string id = Create();
  const size_t begun = runtime_.begun.size();
  const auto answer = Call("POST", "/v1/sandboxes/" + id + "/fork", R"({"count":3})");
  EXPECT_EQ(answer->json()["error"]["code"], "limit");
  EXPECT_EQ(runtime_.begun.size(), begun);
}

TEST_F(SnapshotsTest, WithoutItsFilesNothingIsPromised) {
  const std::string id = Create();
  const uint64_t promised = sandboxes_.admission().promised().memory_bytes;
  const auto answer = Call("POST", "/v1/sandboxes/" + id + "/fork", R"({"count":3})");
  EXPECT_EQ(answer->json()["error"]["code"], "unsupported");
  EXPECT_EQ(sandboxes_.admission().promised().memory_bytes, promised);
  EXPECT_EQ(Call("POST", "/v1/sandboxes/" + id + "/snapshot", R"({"reference":"a:b"})")
                ->json()["error"]["code"],
            "unsupported");
}

TEST_F(SnapshotsTest, NamesAreLookedAtFirst) {
  const std::string path = "/v1/sandboxes/" + Create() + "/snapshot";
  for (const char* body : {"{}", R"({"reference":""})", R"({"reference":"-no"})", R"({"x":1})"})
    EXPECT_EQ(Call("POST", path, body)->status(), 400) << body;
}

}  // namespace
}  // namespace hutch::daemon
