// The audit log as requests see it.
#include "daemon/audit_records.h"
#include "daemon/limits.h"
#include "tests/daemon/daemon_fixture.h"

namespace hutch::daemon {
namespace {

using AuditRequestTest = DaemonTest;

TEST_F(AuditRequestTest, PagesAreBounded) {
  const std::string above = std::to_string(kMaxAuditPage + 1);
  EXPECT_EQ(Call("GET", "/v1/audit?limit=" + above)->code(), "invalid_argument");
  EXPECT_EQ(Call("GET", "/v1/audit?limit=0")->code(), "invalid_argument");
  // No log is kept here: the question itself was understood.
  const std::string most = std::to_string(kMaxAuditPage);
  EXPECT_EQ(Call("GET", "/v1/audit?limit=" + most)->code(), "unavailable");
}

TEST_F(AuditRequestTest, ContentIsBoundedAndOnlyThereWhenAskedFor) {
  SandboxEntry sandbox;
  ExecFields fields;
  fields.args = {"cat"};
  fields.stdin_bytes = std::string(2 * kMaxAuditContentBytes, 'x');
  EXPECT_FALSE(BeginExecAudit(api_, sandbox, Request(), fields).detail.contains("stdin"));
  config_.audit_content = "on";
  const AuditEntry entry = BeginExecAudit(api_, sandbox, Request(), fields);
  EXPECT_EQ(entry.detail["stdin"].get<std::string>().size(), kMaxAuditContentBytes);
}

}  // namespace
}  // namespace hutch::daemon
