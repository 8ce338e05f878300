#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <thread>

#include "base/file.h"
#include "rootfs/digest.h"
#include "rootfs/store.h"
#include "tests/base/temp_dir.h"
#include "tests/support/image_layout.h"
#include "tests/support/tar_writer.h"
#include "tests/support/tree_listing.h"

namespace hutch::rootfs {
namespace {

std::string Text(const Error& error) {
  return error.ToString() + " (" + CodeName(error.code) + ")";
}

class StoreTest : public testing::Test {
 protected:
  void SetUp() override { Reopen(); }
  void Reopen() {
    store_.reset();
    auto store = Store::Open(state_ / "state");
    ASSERT_TRUE(store.has_value()) << Text(store.error());
    store_ = *std::move(store);
  }
  Image Import(const std::string& path, const std::string& reference = "") {
    auto image = store_->Import(path, reference, nullptr);
    EXPECT_TRUE(image.has_value()) << Text(image.error());
    return image ? *image : Image();
  }
  std::string LayerRoot(const std::string& diff_id) const {
    return state_ / ("state/layers/" + diff_id.substr(7) + "/fs");
  }
  // Everything below the state directory, without times.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const std::string& line : ListTree(state_ / "state"))
      names.push_back(line.substr(0, line.find(' ')));
    return names;
  }
  TempDir state_, work_;
  std::unique_ptr<Store> store_;
};

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

}  // namespace
}  // namespace hutch::rootfs
