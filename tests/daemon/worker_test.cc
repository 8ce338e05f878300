#include "daemon/worker.h"

#include <gtest/gtest.h>

#include <future>

namespace hutch::daemon {
namespace {

TEST(WorkerTest, WhatItTakesIsBoundedForEachWorker) {
  Worker worker(1, 2);
  std::promise<void> begun, may_end;
  ASSERT_TRUE(worker
                  .Submit([&] {
                    begun.set_value();
                    may_end.get_future().wait();
                  })
                  .has_value());
  begun.get_future().wait();  // it waits no more: two others may
  EXPECT_TRUE(worker.Submit([] {}).has_value());
  EXPECT_TRUE(worker.Submit([] {}).has_value());
  EXPECT_EQ(worker.Submit([] {}).error().code, Code::kUnavailable);
  may_end.set_value();
}

}  // namespace
}  // namespace hutch::daemon
