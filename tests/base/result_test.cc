#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>

namespace hutch {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return Error{.code = Code::kInvalidArgument, .what = "odd"};
  return value / 2;
}

Result<int> Quarter(int value) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  return Half(half);
}

Status CheckQuarter(int value) {
  RETURN_IF_ERROR(Quarter(value));
  return OkStatus();
}

TEST(Result, MacrosPassValuesAndErrorsOn) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(6).error().what, "odd");
  EXPECT_TRUE(CheckQuarter(4).has_value());
  EXPECT_EQ(CheckQuarter(2).error().code, Code::kInvalidArgument);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  Result<std::unique_ptr<int>> result = std::make_unique<int>(7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, ReadingTheWrongSideIsABugOfOurs) {
  EXPECT_DEATH(Half(1).value(), "check failed");
  EXPECT_DEATH(Half(2).error().ToString(), "check failed");
}

TEST(Result, AKernelErrorNamesItsCause) {
  const Error error = SysError(EACCES, "mkdir /x");
  EXPECT_EQ(error.code, Code::kKernel);
  EXPECT_EQ(error.sys, EACCES);
  EXPECT_EQ(error.what, "mkdir /x: Permission denied");
  EXPECT_EQ(SysError(ENOSPC, "write").code, Code::kNoSpace);
  EXPECT_EQ(SysError(EDQUOT, "write").code, Code::kNoSpace);
}

TEST(Result, ErrnoNamesAreSymbolsOrNumbers) {
  EXPECT_EQ(ErrnoName(ENOENT), "ENOENT");
  EXPECT_EQ(ErrnoName(4095), "errno 4095");
  EXPECT_NE(SysError(4095, "x").what.find("errno 4095"), std::string::npos);
}

TEST(Result, TheLineForPeopleHasStepTextAndHint) {
  const Error error{.step = "create cgroup", .what = "no room", .hint = "delete some"};
  EXPECT_EQ(error.ToString(), "create cgroup: no room (delete some)");
  EXPECT_EQ(Error{.what = "plain"}.ToString(), "plain");
}

TEST(Result, EveryCodeHasANameAndAnErrorStatus) {
  std::set<std::string> names;
  for (int code = 0; code <= static_cast<int>(Code::kInternal); ++code) {
    EXPECT_TRUE(names.insert(CodeName(static_cast<Code>(code))).second);
    EXPECT_GE(CodeHttpStatus(static_cast<Code>(code)), 400);
    EXPECT_LT(CodeHttpStatus(static_cast<Code>(code)), 600);
  }
}

}  // namespace
}  // namespace hutch
