#include "daemon/worker.h"

#include <gtest/gtest.h>

#include <future>

namespace hutch::daemon {
namespace {

TEST(WorkerTest, WhatItTakesIsBoundedForEachWorker) {
  std::promise<void> begun, may_end;
  Worker worker(1, 2);  // its thread looks at them to the end
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
