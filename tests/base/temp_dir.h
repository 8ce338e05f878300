// A directory of one test's own, removed with everything in it.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>

#include "base/file.h"

namespace hutch {

class TempDir {
 public:
  TempDir() {
    std::string pattern = testing::TempDir() + "hutch-test.XXXXXX";
    if (::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
    EXPECT_FALSE(path_.empty()) << "cannot make " << pattern;
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir() { EXPECT_TRUE(RemoveTree(path_).has_value()) << path_; }

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace hutch
