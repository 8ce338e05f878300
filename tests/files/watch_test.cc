#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <thread>

#include "base/file.h"
#include "tests/files/files_fixture.h"

namespace hutch::files {
namespace {

using oci::Json;

// A watch that runs in a thread, its lines read from a pipe.
class WatchTest : public FilesTest {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);  // the last change may still be written when nobody reads
    ASSERT_EQ(::mkdir(At("t").c_str(), 0755), 0);
    ASSERT_EQ(::mkdir(At("t/sub").c_str(), 0755), 0);
    auto pipe = MakePipe();
    ASSERT_TRUE(pipe.has_value());
    reader_ = std::move(pipe->read);
    writer_ = std::move(pipe->write);
  }
  void TearDown() override {
    reader_.reset();  // ends the watch
    if (thread_.joinable()) thread_.join();
  }
  void Start(bool recursive) {
    thread_ = std::thread([this, recursive] {
      ReplyStream reply(writer_.get());
      Io io{.in = -1, .out = -1, .reply = reply};
      RunRequest(Json{{"op", "watch"}, {"path", At("t")}, {"recursive", recursive}}.dump(), io);
    });
    ASSERT_NE(Await("\"ok\""), "");
  }
  // Reads until a line holds `text`; the line, or "" after ten seconds.
  std::string Await(const std::string& text) {
    while (true) {
      const size_t end = pending_.find('\n');
      if (end != std::string::npos) {
        const std::string line = pending_.substr(0, end);
        pending_.erase(0, end + 1);
        if (line.find(text) != std::string::npos) return line;
        continue;
      }
      struct pollfd waited = {.fd = reader_.get(), .events = POLLIN, .revents = 0};
      if (::poll(&waited, 1, 10'000) <= 0) return "";
      char block[4096];
      const ssize_t n = ::read(reader_.get(), block, sizeof block);
      if (n <= 0) return "";
      pending_.append(block, static_cast<size_t>(n));
    }
  }

  UniqueFd reader_, writer_;
  std::string pending_;
  std::thread thread_;
};

TEST_F(WatchTest, ChangesAreToldWithTheirPaths) {
  Start(false);
  Put("t/file", "x");
  EXPECT_NE(Await("\"created\"").find("/t/file"), std::string::npos);
  EXPECT_NE(Await("\"written\"").find("/t/file"), std::string::npos);
  ASSERT_EQ(::rename(At("t/file").c_str(), At("t/other").c_str()), 0);
  const auto from = Await("\"moved_from\""), to = Await("\"moved_to\"");
  EXPECT_NE(to.find("/t/other"), std::string::npos);
  EXPECT_EQ(Json::parse(from)["event"]["cookie"], Json::parse(to)["event"]["cookie"]);
  ASSERT_EQ(::unlink(At("t/other").c_str()), 0);
  EXPECT_NE(Await("\"deleted\""), "");
}

TEST_F(WatchTest, NewDirectoriesAreWatchedToo) {
  Start(true);
  Put("t/sub/old", "x");
  EXPECT_NE(Await("/t/sub/old"), "");
  ASSERT_EQ(::mkdir(At("t/new").c_str(), 0755), 0);
  ASSERT_EQ(::mkdir(At("t/new/below").c_str(), 0755), 0);
  EXPECT_NE(Await("/t/new/below"), "");
  Put("t/new/below/file", "x");
  EXPECT_NE(Await("/t/new/below/file"), "");
  ASSERT_EQ(::rename(At("t/new").c_str(), At("t/sub/moved").c_str()), 0);
  EXPECT_NE(Await("\"moved_to\""), "");
  Put("t/sub/moved/below/again", "x");
  EXPECT_NE(Await("/t/sub/moved/below/again"), "");
}

TEST_F(WatchTest, ItEndsWhenItsPathIsGone) {
  Start(true);
  ASSERT_EQ(Op("delete", "t", {{"recursive", true}}).code(), "");
  EXPECT_NE(Await("\"gone\""), "");
  thread_.join();
}

TEST_F(WatchTest, MoreDirectoriesThanMayBeWatchedAreRefused) {
  for (int i = 0; i < 8200; ++i)
    ASSERT_EQ(::mkdir(At("t/sub/" + std::to_string(i)).c_str(), 0755), 0);
  EXPECT_EQ(Op("watch", "t", {{"recursive", true}}).code(), "limit");
}

}  // namespace
}  // namespace hutch::files
