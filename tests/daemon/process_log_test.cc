#include "daemon/process_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "base/file.h"
#include "daemon/limits.h"
#include "tests/base/temp_dir.h"

namespace hutch::daemon {
namespace {

class ProcessLogTest : public testing::Test {
 protected:
  void SetUp() override {
    auto pipe = MakePipe(O_NONBLOCK);
    ASSERT_TRUE(pipe.has_value());
    pipe_ = std::move(*pipe);
    Reopen();
  }
  void Reopen(uint64_t limit = 1 << 20) {
    auto log = ProcessLog::Open(dir_.path() + "/log", limit);
    ASSERT_TRUE(log.has_value()) << log.error().ToString();
    log_ = std::move(*log);
  }
  void Say(StreamId stream, const std::string& text) {
    ASSERT_TRUE(WriteAll(pipe_.write.get(), text).has_value());
    bool at_end = false;
    EXPECT_EQ(log_->Pump(pipe_.read.get(), stream, kPumpBytes, &at_end), text.size());
    EXPECT_FALSE(at_end);
  }
  std::string All(uint64_t from = 0) {
    std::string text;
    auto runs = log_->Read(from, 1 << 24);
    EXPECT_TRUE(runs.has_value());
    for (const LogRun& run : *runs) text += run.bytes;
    return text;
  }

  TempDir dir_;
  Pipe pipe_;
  std::unique_ptr<ProcessLog> log_;
};

TEST_F(ProcessLogTest, RunsKeepTheOrderOfArrival) {
  Say(StreamId::kStdout, "one");
  Say(StreamId::kStderr, "two");
  Say(StreamId::kStdout, "three");
  const auto runs = log_->Read(0, 100);
  ASSERT_EQ(runs->size(), 3u);
  EXPECT_EQ((*runs)[0].bytes, "one");
  EXPECT_EQ((*runs)[1].stream, StreamId::kStderr);
  EXPECT_EQ((*runs)[2].bytes, "three");
  EXPECT_EQ((*runs)[2].offset, 6u);
  EXPECT_EQ(log_->written(StreamId::kStdout), 8u);
  EXPECT_EQ(log_->written(StreamId::kStderr), 3u);
}

TEST_F(ProcessLogTest, AReaderMayStartAndStopAnywhere) {
  Say(StreamId::kStdout, "abc");
  Say(StreamId::kStderr, "def");
  const auto runs = log_->Read(2, 2);
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ((*runs)[0].bytes, "c");
  EXPECT_EQ((*runs)[1].bytes, "d");
  EXPECT_EQ((*runs)[1].offset, 3u);
  EXPECT_TRUE(log_->Read(6, 10)->empty());
  EXPECT_TRUE(log_->Read(600, 10)->empty());
}

TEST_F(ProcessLogTest, TheEndOfThePipeIsTold) {
  Say(StreamId::kStdout, "x");
  pipe_.write.reset();
  bool at_end = false;
  EXPECT_EQ(log_->Pump(pipe_.read.get(), StreamId::kStdout, 100, &at_end), 0u);
  EXPECT_TRUE(at_end);
}

TEST_F(ProcessLogTest, ALogIsTakenUpWithItsCounts) {
  Say(StreamId::kStdout, "abc");
  Say(StreamId::kStderr, "de");
  Reopen();
  EXPECT_EQ(log_->end(), 5u);
  EXPECT_EQ(log_->written(StreamId::kStdout), 3u);
  EXPECT_EQ(log_->written(StreamId::kStderr), 2u);
  Say(StreamId::kStdout, "f");
  EXPECT_EQ(All(), "abcdef");
}

TEST_F(ProcessLogTest, RotationBoundsTheDiskAndKeepsTheLatest) {
  Reopen(kMinLogBytes);
  std::string written;
  for (int i = 0; i < 20000; ++i) {
    const std::string line = "line " + std::to_string(i) + "\n";
    Say(i % 7 == 0 ? StreamId::kStderr : StreamId::kStdout, line);
    written += line;
  }
  EXPECT_GT(log_->begin(), 0u);
  EXPECT_EQ(log_->end(), written.size());
  EXPECT_EQ(All(), written.substr(log_->begin()));
  uint64_t on_disk = 0;
  const std::vector<std::string> names = *ListDirectory(dir_.path() + "/log");
  for (const std::string& name : names)
    on_disk += ReadFile(dir_.path() + "/log/" + name, 1 << 24)->size();
  EXPECT_EQ(names.size(), 4u);
  EXPECT_LE(on_disk, kMinLogBytes + 2 * 4096);
  const uint64_t out = log_->written(StreamId::kStdout);
  Reopen(kMinLogBytes);
  EXPECT_EQ(log_->written(StreamId::kStdout), out);
  EXPECT_EQ(All(), written.substr(log_->begin()));
}

TEST_F(ProcessLogTest, TimesFindTheirRun) {
  Say(StreamId::kStdout, "old");
  ::usleep(30'000);
  Say(StreamId::kStdout, "new");
  const auto runs = log_->Read(0, 100);
  ASSERT_EQ(runs->size(), 2u);
  EXPECT_EQ(log_->FindTime((*runs)[0].time_us), 0u);
  EXPECT_EQ(log_->FindTime((*runs)[0].time_us + 1), 3u);
  EXPECT_EQ(log_->FindTime((*runs)[1].time_us + 1), 6u);
}

// A writer killed at random: nothing lost, nothing twice. The pipe is what the agent would keep.
TEST_F(ProcessLogTest, KilledWritersLoseNothingAndStoreNothingTwice) {
  Pipe pipe = std::move(*MakePipe());
  const pid_t writer = ::fork();
  if (writer == 0) {
    for (int i = 0; i < 60000; ++i) {
      const std::string line = std::to_string(i) + "\n";
      if (!WriteAll(pipe.write.get(), line).has_value()) ::_exit(1);
    }
    ::_exit(0);
  }
  pipe.write.reset();
  const std::string directory = dir_.path() + "/killed";
  int rounds = 0;
  for (bool done = false; !done; ++rounds) {
    const pid_t pump = ::fork();
    if (pump == 0) {
      auto log = ProcessLog::Open(directory, 1 << 24);
      bool at_end = false;
      while (!at_end) (*log)->Pump(pipe.read.get(), StreamId::kStdout, 700, &at_end);
      ::_exit(0);
    }
    ::usleep(static_cast<useconds_t>(300 + 137 * (rounds % 11)));
    ::kill(pump, SIGKILL);
    int status = 0;
    ::waitpid(pump, &status, 0);
    done = WIFEXITED(status);
  }
  int status = 0;
  ::waitpid(writer, &status, 0);
  std::string expected;
  for (int i = 0; i < 60000; ++i) expected += std::to_string(i) + "\n";
  auto log = ProcessLog::Open(directory, 1 << 24);
  std::string text;
  const auto runs = (*log)->Read(0, 1 << 24);
  for (const LogRun& run : *runs) text += run.bytes;
  EXPECT_GT(rounds, 3);
  EXPECT_TRUE(text == expected) << rounds << " rounds, " << text.size() << " bytes of "
                                << expected.size();
}

}  // namespace
}  // namespace hutch::daemon
