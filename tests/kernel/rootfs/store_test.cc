#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <thread>

#include "base/file.h"
#include "rootfs/digest.h"
#include "tests/kernel/rootfs/store_fixture.h"
#include "tests/support/tar_writer.h"

namespace hutch::rootfs {
namespace {

TEST_F(StoreTest, ImportsALayoutOfTwoLayers) {
  const Image image = Import(MakeBusyboxImage(work_.path(), "--two-layers --gzip"));
  ASSERT_EQ(image.diff_ids.size(), 2u);
  EXPECT_EQ(image.references, std::vector<std::string>{"busybox:latest"});
  EXPECT_EQ(image.config.user, "1000:1000");
  EXPECT_GT(image.size_bytes, 1u << 20);
  EXPECT_EQ(image.created, "2023-11-14T22:13:20Z");
  const std::string base = LayerRoot(image.diff_ids[0]), upper = LayerRoot(image.diff_ids[1]);
  struct stat st {};
  ASSERT_EQ(::stat((base + "/workspace").c_str(), &st), 0);
  EXPECT_EQ(st.st_uid, 1000u);
  EXPECT_EQ(st.st_mtim.tv_sec, 1'700'000'000);
  ASSERT_EQ(::stat((base + "/tmp").c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 07777, 01777u);
  ASSERT_EQ(::lstat((upper + "/etc/gone").c_str(), &st), 0);
  EXPECT_TRUE(S_ISCHR(st.st_mode));
  EXPECT_EQ(st.st_rdev, 0u);
  char value[8];
  EXPECT_EQ(::lgetxattr((upper + "/opaque").c_str(), "trusted.overlay.opaque", value, 8), 1);
  EXPECT_FALSE(PathExists(upper + "/opaque/.wh..wh..opq"));
  EXPECT_TRUE(store_->OpenLayer(image.diff_ids[0]).has_value());
  EXPECT_FALSE(store_->OpenLayer(DigestOf("another")).has_value());
}

TEST_F(StoreTest, AReopenedStoreHasTheSameImages) {
  const Image image = Import(MakeBusyboxImage(work_.path()), "first");
  Import(work_ / "busybox", "second:tag");
  Reopen();
  ASSERT_EQ(store_->List().size(), 1u);
  for (const std::string& reference :
       {std::string("first"), std::string("first:latest"), std::string("second:tag"), image.id,
        image.id.substr(7, 6)}) {
    const auto found = store_->Resolve(reference);
    ASSERT_TRUE(found.has_value()) << reference;
    EXPECT_EQ(found->id, image.id);
    EXPECT_EQ(found->size_bytes, image.size_bytes);
    EXPECT_EQ(found->diff_ids, image.diff_ids);
  }
  EXPECT_EQ(store_->Resolve("second").error().code, Code::kNotFound);
  EXPECT_EQ(store_->Resolve(image.id.substr(7, 5)).error().code, Code::kNotFound);
}

TEST_F(StoreTest, RemovingTheLastNameRemovesImageAndLayers) {
  const auto empty = Paths();
  const Image image = Import(MakeBusyboxImage(work_.path()), "one");
  Import(work_ / "busybox", "two");
  EXPECT_EQ(Remove("one", {image.id}).error().code, Code::kBadState);
  auto removed = Remove("one", {});
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(removed->references, std::vector<std::string>{"one:latest"});
  EXPECT_TRUE(removed->layers.empty());
  removed = Remove("two:latest", {"sha256:another"});
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(removed->layers, image.diff_ids);
  EXPECT_EQ(removed->freed_bytes, image.size_bytes);
  EXPECT_TRUE(store_->List().empty());
  ASSERT_TRUE(RemoveTree(state_ / "state/images/index.json").has_value());
  EXPECT_EQ(Paths(), empty);
  EXPECT_EQ(Remove("two", {}).error().code, Code::kNotFound);
}

TEST_F(StoreTest, ALayerSharedWithAnotherImageStays) {
  const Image both = Import(MakeBusyboxImage(work_.path(), "--two-layers"), "both");
  const Image base = Import(MakeBusyboxImage(work_.path()), "base");
  ASSERT_EQ(base.diff_ids[0], both.diff_ids[0]);
  const auto removed = Remove(both.id, {});
  ASSERT_TRUE(removed.has_value());
  EXPECT_EQ(removed->layers, std::vector<std::string>{both.diff_ids[1]});
  EXPECT_TRUE(store_->OpenLayer(base.diff_ids[0]).has_value());
}

TEST_F(StoreTest, AnArchiveCannotTakeAName) {
  const Image first = Import(MakeBusyboxImage(work_.path()));
  const std::string other = MakeBusyboxImage(work_.path(), "--two-layers");
  EXPECT_EQ(Refused(other).code, Code::kExists);
  const Image second = Import(other, "busybox");  // whoever imports may
  EXPECT_EQ(store_->Resolve("busybox")->id, second.id);
  EXPECT_TRUE(store_->Resolve(first.id)->references.empty());
}

TEST_F(StoreTest, ARepeatedLayerIsListedOnce) {
  const std::string a = TarWriter().File("f", "a").Bytes(), b = TarWriter().File("f", "b").Bytes();
  Layout layout;
  for (const std::string& tar : {a, b, a}) layout.layers.push_back({tar, DigestOf(tar)});
  const Image image = Import(WriteLayoutFiles(layout, work_ / "layout"));
  EXPECT_EQ(image.diff_ids, (std::vector<std::string>{DigestOf(b), DigestOf(a)}));
}

TEST_F(StoreTest, OpenSweepsWhatACrashLeft) {
  const Image image = Import(MakeBusyboxImage(work_.path()));
  const auto before = Paths();
  ASSERT_EQ(Shell("cd " + (state_ / "state") +
                  " && mkdir -p layers/.tmp-abc/fs/x images/.tmp-x && "
                  "mkdir -p layers/" +
                  std::string(64, 'a') + "/fs && touch images/blobs/sha256/" +
                  std::string(64, 'b') + " images/blobs/sha256/c.tmp"),
            0);
  Reopen();
  EXPECT_EQ(Paths(), before);
  EXPECT_TRUE(store_->Resolve(image.id).has_value());
}

TEST_F(StoreTest, ADamagedImageIsDroppedAndNamed) {
  const Image damaged = Import(MakeBusyboxImage(work_.path()), "damaged");
  const Image whole = Import(MakeBusyboxImage(work_.path(), "--two-layers"), "whole");
  ASSERT_TRUE(WriteFileAtomic(state_ / ("state/images/blobs/sha256/" + damaged.id.substr(7)), "{}",
                              Durability::kMemory)
                  .has_value());
  Reopen();
  ASSERT_EQ(store_->Damaged().size(), 1u);
  EXPECT_TRUE(store_->Damaged()[0].starts_with(damaged.id));
  ASSERT_EQ(store_->List().size(), 1u);
  EXPECT_EQ(store_->List()[0].id, whole.id);
}

TEST_F(StoreTest, DirModes) {
  Import(MakeBusyboxImage(work_.path()));
  Reopen();
  for (const char* directory : {"state/images", "state/layers", "state/images/blobs"}) {
    struct stat st {};
    ASSERT_EQ(::stat((state_ / directory).c_str(), &st), 0);
    EXPECT_EQ(st.st_mode & 07777, 0700u) << directory;
  }
}

TEST_F(StoreTest, ManyImportsAndRemovalsAtOnce) {
  MakeBusyboxImage(work_.path(), "--two-layers");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&, i] {
      const std::string name = "image" + std::to_string(i);
      for (int round = 0; round < 3; ++round) {
        const auto image = store_->Import(work_ / "busybox", name, nullptr);
        EXPECT_TRUE(image.has_value()) << Text(image.error());
        for (const std::string& diff_id : image->diff_ids)
          EXPECT_TRUE(store_->OpenLayer(diff_id).has_value());
        EXPECT_TRUE(Remove(name, {}).has_value());
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(store_->List().empty());
  EXPECT_TRUE(ListDirectory(state_ / "state/layers")->empty());
}

TEST_F(StoreTest, ProgressCountsTheBytesOfAllLayers) {
  std::vector<Progress> seen;
  const auto image = store_->Import(MakeBusyboxImage(work_.path(), "--two-layers"), "x",
                                    [&](const Progress& p) { seen.push_back(p); });
  ASSERT_TRUE(image.has_value());
  ASSERT_FALSE(seen.empty());
  EXPECT_EQ(seen.front().stage, "verify");
  EXPECT_EQ(seen.back().stage, "unpack");
  EXPECT_EQ(seen.back().done, seen.back().total);
  EXPECT_GT(seen.back().total, 1u << 20);
}

TEST_F(StoreTest, WhatIsNoImage) {
  EXPECT_EQ(Refused(work_ / "missing").code, Code::kNotFound);
  EXPECT_EQ(Refused(work_.path()).code, Code::kNotFound);  // a directory with nothing in it
  EXPECT_EQ(Refused("/dev/null").code, Code::kInvalidArgument);
  ASSERT_TRUE(WriteFileAtomic(work_ / "text", "hello", Durability::kMemory).has_value());
  EXPECT_EQ(Refused(work_ / "text").code, Code::kCorrupt);
  for (const char* name : {"../x", "a b", "-x", "x:", "sha256:abc", "a//b", ".hidden"})
    EXPECT_EQ(Refused(work_.path(), name).code, Code::kInvalidArgument) << name;
}

}  // namespace
}  // namespace hutch::rootfs
