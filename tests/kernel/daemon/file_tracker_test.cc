// The tracker on a real tmpfs: when it looks, and what it then tells.
#include "daemon/file_tracker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "rootfs/overlay.h"

namespace hutch::daemon {
namespace {

class FileTrackerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto scratch = rootfs::Scratch::Make(512u << 20);
    ASSERT_TRUE(scratch.has_value());
    scratch_ = std::move(*scratch);
    ASSERT_EQ(::mkdirat(scratch_.mount_fd(), "m0", 0755), 0);
    Start();
  }
  void Start() {
    tracker_ = std::make_unique<FileTracker>(
        FileTracker::Parts{.loop = loop_,
                           .worker = worker_,
                           .budget = budget_,
                           .scratch = std::move(*Duplicate(scratch_.mount_fd())),
                           .roots = {{"m0", "/workspace", false}},
                           .layers = {}});
  }
  void Write(const std::string& name, const std::string& text = "") {
    const UniqueFd fd(::openat(scratch_.mount_fd(), ("m0/" + name).c_str(),
                               O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    ASSERT_TRUE(WriteAll(fd.get(), text).has_value());
  }
  // Runs the loop until a callback came.
  template <class T>
  T Await(const std::function<void(std::function<void(T)>)>& begin) {
    std::optional<T> got;
    begin([&](T value) {
      got = std::move(value);
      loop_.Stop();
    });
    at_once_ = got.has_value();
    if (!got) loop_.Run();
    return got ? std::move(*got) : T();
  }
  FileTracker::SnapshotPointer Begin(Others others = Others::kQuiet) {
    return Await<FileTracker::SnapshotPointer>(
        [&](auto taken) { tracker_->Begin(others, std::move(taken)); });
  }
  std::string End(FileTracker::SnapshotPointer before, Others others = Others::kQuiet) {
    const auto set = Await<std::optional<rootfs::ChangeSet>>(
        [&](auto told) { tracker_->End(std::move(before), others, std::move(told)); });
    if (!set) return "unknown";
    complete_ = set->complete;
    std::string text;
    for (const rootfs::FileChange& change : set->changes)
      text += std::string(rootfs::ChangeActionName(change.action)) + " " + change.path + "\n";
    return text;
  }

  Loop loop_;
  Worker worker_{1};
  SnapshotBudget budget_;
  rootfs::Scratch scratch_;
  std::unique_ptr<FileTracker> tracker_;
  bool at_once_ = false, complete_ = true;
};

TEST_F(FileTrackerTest, EachCommandIsToldWhatItChanged) {
  auto before = Begin();
  Write("a", "1");
  EXPECT_EQ(End(before), "created /workspace/a\n");
  before = Begin();
  Write("a", "2");
  Write("b");
  EXPECT_EQ(End(before), "modified /workspace/a\ncreated /workspace/b\n");
  EXPECT_EQ(End(Begin()), "");
}

TEST_F(FileTrackerTest, AQuietSandboxIsWalkedOnceACommand) {
  EXPECT_EQ(End(Begin()), "");
  const auto kept = Begin();
  EXPECT_GT(budget_.kept_bytes, 0u);
  EXPECT_EQ(Begin(), kept);
  tracker_->Touch();
  EXPECT_EQ(budget_.kept_bytes, 0u);
  EXPECT_NE(Begin(), kept);
}

TEST_F(FileTrackerTest, WhatOthersDoBetweenCommandsIsNotTheNextOnes) {
  EXPECT_EQ(End(Begin()), "");
  Write("by-request");
  tracker_->Touch();
  EXPECT_EQ(End(Begin()), "");
  EXPECT_EQ(End(Begin(), Others::kRunning), "");  // something was left behind
  Write("by-what-was-left");
  EXPECT_EQ(End(Begin()), "");
  Write("by-what-still-runs");
  EXPECT_EQ(End(Begin(Others::kRunning)), "");
}

TEST_F(FileTrackerTest, ManyFilesAreWalkedByAWorker) {
  for (size_t i = 0; i <= kMaxInlineWalkFiles; ++i) Write(std::to_string(i));
  auto before = Begin();  // did not know
  Write("one more");
  EXPECT_EQ(End(before), "created /workspace/one more\n");
  EXPECT_FALSE(at_once_);
  before = Begin();
  ASSERT_EQ(::unlinkat(scratch_.mount_fd(), "m0/one more", 0), 0);
  EXPECT_EQ(End(before), "deleted /workspace/one more\n");
}

TEST_F(FileTrackerTest, ListsAreBounded) {
  const auto before = Begin();
  for (size_t i = 0; i <= kMaxFilesChanged; ++i) Write(std::to_string(i));
  End(before);
  EXPECT_FALSE(complete_);
}

TEST_F(FileTrackerTest, NothingIsKeptBeyondTheBudget) {
  budget_.kept_bytes = kMaxKeptSnapshotBytes;
  EXPECT_EQ(End(Begin()), "");
  EXPECT_EQ(budget_.kept_bytes, kMaxKeptSnapshotBytes);
  Write("seen all the same");
  EXPECT_EQ(End(Begin()), "");
}

TEST_F(FileTrackerTest, WhoWaitsIsAnsweredWhenTheTrackerGoes) {
  for (size_t i = 0; i <= kMaxInlineWalkFiles; ++i) Write(std::to_string(i));
  Begin();
  bool answered = false;
  tracker_->Touch();
  tracker_->Begin(Others::kQuiet, [&](const FileTracker::SnapshotPointer& snapshot) {
    answered = true;
    EXPECT_EQ(snapshot, nullptr);
  });
  EXPECT_FALSE(answered);
  tracker_.reset();
  EXPECT_TRUE(answered);
  EXPECT_EQ(budget_.kept_bytes, 0u);
}

}  // namespace
}  // namespace hutch::daemon
