// A store in a directory of the test's own.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "rootfs/store.h"
#include "tests/base/temp_dir.h"
#include "tests/support/image_layout.h"
#include "tests/support/tree_listing.h"

namespace hutch::rootfs {

inline std::string Text(const Error& error) {
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
  // Of what has that reference just now.
  Result<Store::Removed> Remove(const std::string& reference,
                                const std::vector<std::string>& in_use) {
    ASSIGN_OR_RETURN(const Image image, store_->Resolve(reference));
    return store_->Remove(reference, image.id, in_use);
  }
  // What a refused import says; the store must be as it was.
  Error Refused(const std::string& path, const std::string& reference = "") {
    const auto before = Paths();
    auto image = store_->Import(path, reference, nullptr);
    EXPECT_FALSE(image.has_value()) << path << " was imported";
    EXPECT_EQ(Paths(), before) << "left behind by " << path;
    return image ? Error() : std::move(image).error();
  }
  std::string LayerRoot(const std::string& diff_id) const {
    return state_ / ("state/layers/" + diff_id.substr(7) + "/fs");
  }
  // Every path below the state directory.
  std::vector<std::string> Paths() const {
    std::vector<std::string> paths;
    for (const std::string& line : ListTree(state_ / "state"))
      paths.push_back(line.substr(0, line.find(' ')));
    return paths;
  }
  TempDir state_, work_;
  std::unique_ptr<Store> store_;
};

}  // namespace hutch::rootfs
