// Plain HTTP through the proxy: request by request.
#include <gmock/gmock.h>
#include <sys/socket.h>

#include "network/egress/limits.h"
#include "tests/kernel/network/egress_fixture.h"

namespace hutch::network {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kClose[] = "Connection: close\r\n\r\n";

class EgressHttp : public EgressTest {
 protected:
  void SetUp() override {
    EgressTest::SetUp();
    for (const char* name : {"good.test", "api.test", "other.test"}) names_->Set(name, {kServer});
    origin_->Serve({kServer, 80}, Manner::kHttp);
    origin_->Serve({kServer, 8080}, Manner::kHttp);
  }
  Said Get(const std::string& url, const std::string& fields = "") {
    const std::string host = url.substr(7, url.find('/', 7) - 7);
    return Proxy("GET " + url + " HTTP/1.1\r\nHost: " + host + "\r\n" + fields + kClose);
  }
};

TEST_F(EgressHttp, ARequestIsPassedInTheOriginsForm) {
  Allow(R"({"mode":"allowlist","allow":["good.test","good.test:8080"]})");
  const Said said = Get("http://good.test/a?b=c",
                        "X-Kept: yes\r\nProxy-Connection: close\r\n"
                        "Connection: x-hop\r\nX-Hop: gone\r\n");
  EXPECT_THAT(said.text, StartsWith("HTTP/1.1 200 OK\r\n"));
  EXPECT_THAT(said.text,
              HasSubstr("\r\n\r\nGET /a?b=c HTTP/1.1\r\nHost: good.test\r\nX-Kept: yes\r\n"));
  EXPECT_THAT(said.text, Not(HasSubstr("X-Hop")));
  EXPECT_THAT(said.text, Not(HasSubstr("Proxy-Connection")));
  EXPECT_EQ(said.end, Said::End::kClosed);
  EXPECT_THAT(Get("http://good.test:8080/").text, HasSubstr("Host: good.test:8080\r\n"));
}

TEST_F(EgressHttp, EachRequestOfAConnectionIsJudged) {
  Allow(R"({"mode":"allowlist","allow":["good.test","api.test"]})");
  UniqueFd fd;
  ASSERT_EQ(Connect(box(), {kLoopbackV4, kProxyPort}, &fd), 0);
  for (const char* host : {"good.test", "good.test", "api.test"}) {
    const std::string name = host;
    EXPECT_THAT(SayOn(fd.get(), "GET http://" + name + "/ HTTP/1.1\r\nHost: " + name + "\r\n\r\n",
                      "keep-alive\r\n\r\n\r\n")
                    .text.substr(0, 12),
                "HTTP/1.1 200");
  }
  EXPECT_EQ(origin_->connections(), 2u);  // one for each host
  const Said last = SayOn(fd.get(), "GET http://evil.test/ HTTP/1.1\r\nHost: evil.test\r\n\r\n");
  EXPECT_THAT(last.text, AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("evil.test:80 is denied: it "
                                                                     "is not in the allowlist")));
  EXPECT_EQ(last.end, Said::End::kClosed);
  EXPECT_EQ(AwaitDenial("not in the allowlist").protocol, "http");
}

TEST_F(EgressHttp, BodiesArePassedBothWays) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::string length =
      "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"
      "Content-Length: 4\r\n\r\nbodyGET http://good.test/second HTTP/1.1\r\n"
      "Host: good.test\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(Proxy(length).text, HasSubstr("GET /second HTTP/1.1"));
  const std::string chunked =
      "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"
      "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
      "4\r\nbody\r\n0\r\n\r\n";
  EXPECT_THAT(Proxy(chunked).text, StartsWith("HTTP/1.1 200"));
}

TEST_F(EgressHttp, WhatTwoReadersCouldReadDifferentlyIsRefused) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::string line = "POST http://good.test/ HTTP/1.1\r\n", host = "Host: good.test\r\n";
  const std::string rows[] = {
      line + host + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
      line + host + "Content-Length: 4\r\nContent-Length: 5\r\n\r\n",
      line + host + "Content-Length: 4, 4\r\n\r\n",
      line + host + "Content-Length: +4\r\n\r\n",
      line + host + "Content-Length: 0x4\r\n\r\n",
      line + host + "Transfer-Encoding: gzip, chunked\r\n\r\n",
      line + host + "Transfer-Encoding: xchunked\r\n\r\n",
      line + host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
      line + host + "Transfer-Encoding : chunked\r\n\r\n",
      line + host + "X: a\r\n b\r\n\r\n",
      line + host + "X: a\nY: b\r\n\r\n",
      line + host + "X: a\rY: b\r\n\r\n",
      line + "Host: good.test\r\nHost: other.test\r\n\r\n",
      line + "Host: other.test\r\n\r\n",
      line + "\r\n",
      line + host + "Connection: content-length\r\nContent-Length: 4\r\n\r\n",
      "GET  http://good.test/ HTTP/1.1\r\n" + host + "\r\n",
      "GET http://good.test/ HTTP/2.0\r\n" + host + "\r\n",
      "GET http://good.test\\@evil.test/ HTTP/1.1\r\n" + host + "\r\n",
      "GET http://user@good.test/ HTTP/1.1\r\n" + host + "\r\n",
      "GET https://good.test/ HTTP/1.1\r\n" + host + "\r\n",
      "GET / HTTP/1.1\r\n" + host + "\r\n",
      "POST http://good.test/ HTTP/1.0\r\n" + host + "Transfer-Encoding: chunked\r\n\r\n"};
  for (const std::string& row : rows) {
    EXPECT_THAT(Proxy(row).text, StartsWith("HTTP/1.1 400 ")) << row;
  }
  EXPECT_EQ(origin_->connections(), 0u);
  EXPECT_EQ(counters().denied, std::size(rows));
}

TEST_F(EgressHttp, AMalformedChunkEndsIt) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::string head =
      "POST http://good.test/ HTTP/1.1\r\nHost: good.test\r\n"
      "Transfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"4\nbody\r\n0\r\n\r\n", "4\r\nbodyX\r\n0\r\n\r\n", " 4\r\nbody\r\n0\r\n\r\n", "-4\r\nbody",
        "fffffffffffffffff\r\n", "4;a=\x01\r\nbody\r\n0\r\n\r\n"}) {
    Proxy(head + body);
    AwaitDenial("chunk");
  }
}

TEST_F(EgressHttp, TheHeadIsBounded) {
  Allow(R"({"mode":"allowlist","allow":["good.test"]})");
  const std::string head = "GET http://good.test/ HTTP/1.1\r\nHost: good.test\r\nX: ";
  EXPECT_THAT(Proxy(head + std::string(40000, 'x') + "\r\n\r\n").text, StartsWith("HTTP/1.1 400 "));
  std::string many = head + "x\r\n";
  for (int i = 0; i < 200; ++i) many += "Y: z\r\n";
  EXPECT_THAT(Proxy(many + "\r\n").text, StartsWith("HTTP/1.1 400 "));
}

TEST_F(EgressHttp, MethodsAndPathsAreKept) {
  Allow(R"({"mode":"allowlist","allow":[
    {"host":"api.test","methods":["GET"],"paths":["/v1/*"]},{"host":"api.test","methods":["POST"],"paths":["/hook"]}]})");
  EXPECT_THAT(Get("http://api.test/v1/a?x=/../..").text, StartsWith("HTTP/1.1 200"));
  for (const char* path : {"/", "/v1", "/v2/a", "/v1/../secret", "/v1/%2e%2e/secret", "/v1//a"}) {
    EXPECT_THAT(Get(std::string("http://api.test") + path).text,
                AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("no rule allows GET of this path")))
        << path;
  }
  const std::string rest =
      " HTTP/1.1\r\nHost: api.test\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  EXPECT_THAT(Proxy("POST http://api.test/hook" + rest).text, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Proxy("DELETE http://api.test/hook" + rest).text, StartsWith("HTTP/1.1 403"));
  EXPECT_EQ(ThroughConnect("api.test:443", MakeHello("api.test")).end, Said::End::kReset);
  AwaitDenial("plain HTTP");
}

TEST_F(EgressHttp, FieldsDoNotOverrideMethodsAndPaths) {
  Allow(R"({"mode":"allowlist","allow":[{"host":"api.test","methods":["GET"]},"good.test"]})");
  const std::string fields =
      "X-HTTP-Method-Override: DELETE\r\nx-http-method: DELETE\r\nX-Method-Override: DELETE\r\n"
      "X-Original-URL: /x\r\nX_Rewrite_URL: /x\r\nX-Kept: yes\r\n";
  EXPECT_THAT(Get("http://api.test/", fields).text,
              HasSubstr("GET / HTTP/1.1\r\nHost: api.test\r\nX-Kept: yes\r\nConnection"));
  EXPECT_THAT(Get("http://good.test/", fields).text, HasSubstr(fields));
}

TEST_F(EgressHttp, ATunnelToPort80CarriesRequestsForItsHostOnly) {
  Allow(R"({"mode":"allowlist","allow":["good.test","other.test"]})");
  EXPECT_THAT(ThroughConnect("good.test:80",
                             "GET / HTTP/1.1\r\nHost: good.test\r\nConnection: close\r\n\r\n")
                  .text,
              StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(ThroughConnect("good.test:80", "GET / HTTP/1.1\r\nHost: other.test\r\n\r\n").text,
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("another one than was connected to")));
  EXPECT_EQ(ThroughConnect("good.test:80", MakeHello("good.test")).end, Said::End::kReset);
  AwaitDenial("this is TLS");
}

TEST_F(EgressHttp, ASecretIsPutInForItsHostsOnly) {
  const std::map<std::string, Secret> secrets = {
      {"key", {"Authorization", "Bearer s3cret", {"api.test"}}}};
  Allow(
      R"({"mode":"allowlist","allow":[{"host":"api.test","secret":"key"},{"host":"other.test","secret":"key"},"good.test"]})",
      secrets);
  const Said said = Get("http://api.test/", "authorization: Bearer mine\r\n");
  EXPECT_THAT(said.text, HasSubstr("Authorization: Bearer s3cret\r\n"));
  EXPECT_THAT(said.text, Not(HasSubstr("mine")));
  EXPECT_THAT(Get("http://other.test/").text, Not(HasSubstr("s3cret")));
  EXPECT_THAT(Get("http://good.test/").text, Not(HasSubstr("s3cret")));
  EXPECT_EQ(counters().secrets_used, 1u);
  Allow(R"({"mode":"allowlist","allow":[{"host":"api.test","secret":"key"}]})");
  EXPECT_THAT(Get("http://api.test/").text,
              AllOf(StartsWith("HTTP/1.1 403"), HasSubstr("\"key\"")));
}

TEST_F(EgressHttp, AWebSocketIsOpaqueOnceTheServerAgrees) {
  Allow(R"({"mode":"allowlist","allow":["good.test:81"]})");
  origin_->ServeOnce({kServer, 81},
                     "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n"
                     "Upgrade: websocket\r\n\r\nframes");
  const std::string upgrade =
      "GET http://good.test:81/ HTTP/1.1\r\nHost: good.test:81\r\n"
      "Connection: Upgrade\r\nUpgrade: ";
  EXPECT_THAT(
      Proxy(upgrade + "websocket\r\n\r\n").text,
      AllOf(StartsWith("HTTP/1.1 101 "), HasSubstr("Upgrade: websocket"), HasSubstr("frames")));
  EXPECT_EQ(Proxy(upgrade + "h2c\r\n\r\n").end, Said::End::kReset);  // 101 that nobody asked for
  origin_.reset();
}

TEST_F(EgressHttp, AnswersThatTwoReadersCouldReadDifferentlyAreNotPassed) {
  Allow(R"({"mode":"allowlist","allow":["good.test:82-85"]})");
  const char* rows[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx",
      "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "SSH-2.0-x\r\n\r\n",
      "HTTP/1.1 200 OK\nContent-Length: 1\n\nx"};
  uint16_t port = 82;
  for (const char* row : rows) {
    origin_->ServeOnce({kServer, port}, row);
    EXPECT_THAT(Get("http://good.test:" + std::to_string(port++) + "/").text,
                StartsWith("HTTP/1.1 502 "));
  }
}

TEST_F(EgressHttp, AnInterimAnswerComesBeforeTheBody) {
  Allow(R"({"mode":"allowlist","allow":["good.test:86"]})");
  origin_->ServeOnce({kServer, 86}, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n");
  const std::string head =
      "PUT http://good.test:86/ HTTP/1.1\r\nHost: good.test:86\r\n"
      "Expect: 100-continue\r\nContent-Length: 4\r\n\r\n";
  EXPECT_THAT(Proxy(head, "204 No").text, StartsWith("HTTP/1.1 100 "));
}

TEST_F(EgressHttp, InterimAnswersAreBounded) {
  Allow(R"({"mode":"allowlist","allow":["good.test:86-87"]})");
  uint16_t port = 86;
  for (const int most : {kMaxInterims, kMaxInterims + 1}) {
    std::string answer;
    for (int i = 0; i < most; ++i) answer += "HTTP/1.1 103 Early Hints\r\n\r\n";
    origin_->ServeOnce({kServer, port}, answer + "HTTP/1.1 204 No Content\r\n\r\n");
    const Said said = Get("http://good.test:" + std::to_string(port++) + "/");
    EXPECT_EQ(said.text.find("204 No") != std::string::npos, most == kMaxInterims) << said;
  }
}

TEST_F(EgressHttp, InterimAnswersUseUpTheQuota) {
  Allow(R"({"mode":"allowlist","allow":["good.test:86"],"limits":{"total_bytes":2000}})");
  std::string answer;
  for (int i = 0; i < 3; ++i)
    answer += "HTTP/1.1 103 Early Hints\r\nX: " + std::string(1000, 'x') + "\r\n\r\n";
  origin_->ServeOnce({kServer, 86}, answer + "HTTP/1.1 204 No Content\r\n\r\n");
  EXPECT_THAT(Get("http://good.test:86/").text, Not(HasSubstr("204 No")));
  AwaitDenial("traffic quota");
}

}  // namespace
}  // namespace hutch::network
