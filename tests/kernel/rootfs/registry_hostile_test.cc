// Registries that want credentials, more than is theirs, or to confuse.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/base64.h"
#include "rootfs/limits.h"
#include "rootfs/registry/limits.h"
#include "tests/kernel/rootfs/registry_fixture.h"

namespace hutch::rootfs {
namespace {

constexpr char kPassword[] = "pass-w0rd-of-mine";
const std::string kBasic = "Basic " + Base64Encode(std::string("me:") + kPassword);

class RegistryAuthTest : public RegistryTest {
 protected:
  // The auth file, with me:kPassword for the registry.
  void WriteAuthFile(const std::string& more = "") {
    options_.auth_file = work_ / "config.json";
    ASSERT_TRUE(WriteFileAtomic(options_.auth_file,
                                R"({"auths":{")" + host_ + R"(":{"username":"me","password":")" +
                                    kPassword + "\"" + more + "}}}",
                                Durability::kMemory)
                    .has_value());
  }
  // Everything under /v2/ wants a token of the realm; the realm wants `want`.
  void BearerRules(const std::string& realm, const std::string& want,
                   const std::string& more = "") {
    Rules(R"([{"match":"/token","want":")" + want +
          R"(","challenge":"Basic","status":200,"body":"{\"token\":\"the-t0ken\"}"},)" + more +
          R"({"match":"registry /v2/","want":"Bearer the-t0ken","challenge":"Bearer realm=\")" +
          realm + R"(\",service=\"the registry\""}])");
  }
  void ExpectNoSecret(const std::string& text) {
    EXPECT_EQ(text.find(kPassword), std::string::npos) << text;
    EXPECT_EQ(text.find(kBasic.substr(6)), std::string::npos) << text;
    EXPECT_EQ(text.find("the-t0ken"), std::string::npos) << text;
  }
  // Nobody but the registry's own port saw an Authorization.
  void ExpectOtherSawNothing() {
    for (const FakeRequest& request : Requests()) {
      EXPECT_TRUE(request.port == "registry" || request.authorization + request.form == "");
    }
  }
};

TEST_F(RegistryAuthTest, BasicIsAnsweredFromTheFileOrTheRequest) {
  Serve({Tar("a")});
  const std::string rules =
      R"([{"match":"/v2/","want":")" + kBasic + R"(","challenge":"Basic realm=\"x\""}])";
  Rules(rules);
  Error error = Refused();
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_NE(error.what.find(host_), std::string::npos);
  WriteAuthFile();
  Pull();
  options_.auth_file.clear();
  request_.username = "me";
  request_.password = "wrong";
  ForgetRequests();
  error = Refused("test/image:v2");
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_EQ(Requests().size(), 2u);  // once without, once with
  request_.password = kPassword;
  Pull("test/image:v2");
}

TEST_F(RegistryAuthTest, TokensAreFetchedOnceAndAgainWhenTheyRunOut) {
  const std::string a = Tar("a");
  Serve({a});
  WriteAuthFile();
  BearerRules("http://$HOST/token", kBasic,
              R"({"match":"blobs/)" + DigestOf(a) +
                  R"(","status":401,"headers":{"WWW-Authenticate":)"
                  R"("Bearer realm=\"http://$HOST/token\""},"times":1},)");
  Pull();
  const auto tokens = Requests("/token");
  ASSERT_EQ(tokens.size(), 2u);
  EXPECT_EQ(tokens[0].path, "/token?scope=repository%3atest%2fimage%3apull&service=the%20registry");
}

TEST_F(RegistryAuthTest, ATokenIsFetchedWithoutCredentialsToo) {
  Serve({Tar("a")});
  BearerRules("http://$OTHER/token", "");
  Pull();
  ExpectOtherSawNothing();
  BearerRules("http://$HOST/token", kBasic);
  EXPECT_EQ(Refused("test/image:v2").code, Code::kForbidden);
}

TEST_F(RegistryAuthTest, AnIdentityTokenIsPosted) {
  Serve({Tar("a")});
  WriteAuthFile(R"(,"identitytoken":"id&t0ken")");
  BearerRules("http://$HOST/token", "");
  Pull();
  const auto tokens = Requests("/token");
  ASSERT_EQ(tokens.size(), 1u);
  EXPECT_EQ(tokens[0].method, "POST");
  EXPECT_EQ(tokens[0].authorization, "");
  EXPECT_NE(tokens[0].form.find("grant_type=refresh_token"), std::string::npos);
  EXPECT_NE(tokens[0].form.find("refresh_token=id%26t0ken"), std::string::npos);
}

TEST_F(RegistryAuthTest, auth_realm_leak) {
  Serve({Tar("a")});
  WriteAuthFile();
  BearerRules("http://$OTHER/token", "");
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_NE(error.what.find("not of the same domain"), std::string::npos) << error.what;
  EXPECT_NE(error.what.find(other_), std::string::npos);
  EXPECT_TRUE(Requests("/token").empty());
  BearerRules("http://unlisted.example/token", "");
  EXPECT_NE(Refused().what.find("without TLS"), std::string::npos);
}

TEST_F(RegistryAuthTest, redirect_strips_auth) {
  const std::string a = Tar("a");
  Serve({a});
  WriteAuthFile();
  Rules(R"([{"match":"registry /v2/test/image/blobs","want":")" + kBasic +
        R"(","challenge":"Basic","location":"http://$OTHER/v2/cdn/blobs/)" + DigestOf(a) +
        R"("},{"match":"registry /v2/","want":")" + kBasic + R"(","challenge":"Basic"}])");
  // The configuration is redirected to the layer: wrong bytes, but nobody else saw a credential.
  EXPECT_EQ(Refused().code, Code::kCorrupt);
  Rules(R"([{"match":"registry /v2/test/image/blobs/)" + DigestOf(a) + R"(","want":")" + kBasic +
        R"(","challenge":"Basic","location":"http://$OTHER/v2/cdn/blobs/)" + DigestOf(a) +
        R"("},{"match":"registry /v2/","want":")" + kBasic + R"(","challenge":"Basic"}])");
  Pull();
  EXPECT_EQ(Requests("/v2/cdn").back().port, "other");
  ExpectOtherSawNothing();
}

TEST_F(RegistryAuthTest, RedirectsAreBoundedAndNeverLoseTls) {
  Serve({Tar("a")});
  Rules(R"([{"match":"manifests","location":"http://$HOST/v2/test/image/manifests/v1"}])");
  EXPECT_NE(Refused().what.find("more than 5 redirects"), std::string::npos);
  EXPECT_EQ(Requests().size(), 1u + registry::kMaxRedirects);
  for (const std::string target :
       {"http://unlisted.example/", "ftp://x/", "http://u:p@$OTHER/", ""}) {
    Rules(R"([{"match":"manifests","location":")" + target + "\"}]");
    EXPECT_EQ(Refused().code, Code::kUnavailable) << target;
  }
}

TEST_F(RegistryAuthTest, foreign_layer_no_auth) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  Serve(layout);
  WriteAuthFile();
  layout.config = R"({"os":"linux","rootfs":{"diff_ids":[")" + DigestOf(a) + R"("]}})";
  const auto manifest = [&](const std::string& type) {
    return R"({"schemaVersion":2,"config":)" +
           DescriptorJson("application/vnd.oci.image.config.v1+json", layout.config) +
           R"(,"layers":[)" +
           DescriptorJson(type, a, R"(,"urls":["http://)" + other_ + R"(/layer"])") + "]}";
  };
  layout.manifest = manifest("application/vnd.oci.image.layer.v1.tar");
  Serve(layout);
  Pull();
  layout.manifest = manifest("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip");
  Serve(layout);
  EXPECT_EQ(Refused().code, Code::kUnsupported);
  for (const FakeRequest& request : Requests()) EXPECT_EQ(request.port, "registry");
}

TEST_F(RegistryAuthTest, creds_not_logged) {
  Serve({Tar("a")});
  WriteAuthFile();
  const std::string echo =
      R"("body":"{\"errors\":[{\"code\":\"X\",\"message\":\"$AUTHORIZATION, $DECODED\"}]}"})";
  // A registry, and a token service, that say back what they were given.
  Rules(R"([{"match":"/v2/","want":"no","times":1,)"
        R"("challenge":"Basic"},{"match":"/v2/","status":403,)" +
        echo + "]");
  Error error = Refused();
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_NE(error.what.find("***"), std::string::npos) << error.what;
  ExpectNoSecret(error.ToString());
  Rules(R"([{"match":"/token","status":401,)" + echo +
        R"(,{"match":"/v2/","want":"no","challenge":"Bearer realm=\"http://$HOST/token\""}])");
  error = Refused();
  EXPECT_NE(error.what.find("***"), std::string::npos) << error.what;
  ExpectNoSecret(error.ToString());
  BearerRules("http://$HOST/token", "", R"({"match":"/v2/","status":500,)" + echo + ",");
  error = Refused();
  ExpectNoSecret(error.ToString());
  for (const Progress& report : reports_) ExpectNoSecret(report.stage + report.subject);
  for (const std::string& line : Paths()) ExpectNoSecret(line);
}

TEST_F(RegistryAuthTest, SecretsAreInNoOtherWordsOfARegistryEither) {
  Serve({Tar("a")});
  WriteAuthFile();
  const std::string manifest = R"("headers":{"Content-Type":")"
                               R"(application/vnd.oci.image.manifest.v1+json"},"body":)";
  std::string encoded = kBasic.substr(6);
  for (size_t at; (at = encoded.find('=')) != std::string::npos;) encoded.replace(at, 1, "%3D");
  const std::string rows[] = {
      R"("headers":{"Content-Type":"text/$AUTHORIZATION"},"body":"{}")",
      R"("headers":{"Content-Type":"text/$DECODED"},"body":"{}")",
      manifest + R"("{\"mediaType\":\"$DECODED\"}")",
      manifest + R"("{\"mediaType\":\"x/)" + encoded + R"(\"}")",
      manifest + R"("{\"$DECODED\":1,\"$DECODED\":2}")",
      manifest + R"("{\"config\":{\"digest\":\"$DECODED\",\"size\":1},\"layers\":[]}")",
      // Cut in the middle of it.
      manifest + R"("{\"mediaType\":\")" + std::string(84, 'x') + R"($DECODED\"}")",
      std::string(R"("location":"http://)") + kPassword + R"(.example/")",
      R"("location":"http://the-T0ken.example/")"};
  for (const std::string& row : rows) {
    const std::string challenge =
        row.find("T0ken") == std::string::npos ? "Basic" : R"(Bearer realm=\"http://$HOST/token\")";
    Rules(R"([{"match":"/token","status":200,"body":"{\"token\":\"the-t0ken\"}"},)"
          R"({"match":"/v2/","want":"no","times":1,"challenge":")" +
          challenge + R"("},{"match":"/v2/",)" + row + "}]");
    const Error error = Refused();
    EXPECT_NE(error.what.find("***"), std::string::npos) << error.what;
    ExpectNoSecret(error.what + error.hint + error.field);
    EXPECT_EQ(error.what.find(std::string(kPassword).substr(0, 12)), std::string::npos)
        << error.what;
    EXPECT_EQ(error.what.find(encoded), std::string::npos) << error.what;
  }
}

TEST_F(RegistryTest, ErrorsOfManyEntriesAreBounded) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  Serve(layout);
  std::string entries;
  for (int i = 0; i < 200; ++i)
    entries +=
        (i == 0 ? "" : ",") + DescriptorJson("application/vnd.oci.image.manifest.v1+json", a,
                                             R"(,"platform":{"os":"linux","architecture":")" +
                                                 std::string(2000, 'x') + R"("})");
  layout.index = R"({"schemaVersion":2,"manifests":[)" + entries + "]}";
  Serve(layout);
  const Error error = Refused("test/image:index");
  EXPECT_EQ(error.code, Code::kNotFound);
  EXPECT_NE(error.what.find("and 180 more"), std::string::npos) << error.what;
  EXPECT_LT(error.what.size(), 4096u);
}

TEST_F(RegistryAuthTest, AClientsWordSendsNoStoredCredentialWithoutTls) {
  Serve({Tar("a")});
  WriteAuthFile();
  std::erase(options_.plain_http, host_);
  EXPECT_EQ(Refused().code, Code::kUnavailable);  // it speaks no TLS, loopback or not
  Rules(R"([{"match":"/v2/","want":")" + kBasic + R"(","challenge":"Basic"}])");
  request_.plain_http = true;
  EXPECT_EQ(Refused().code, Code::kForbidden);
  for (const FakeRequest& request : Requests()) EXPECT_EQ(request.authorization, "");
  request_.username = "me";
  request_.password = kPassword;
  Pull();
}

TEST_F(RegistryAuthTest, AnAuthFileThatOthersReadStopsThePull) {
  Serve({Tar("a")});
  WriteAuthFile();
  ASSERT_EQ(::chmod(options_.auth_file.c_str(), 0644), 0);
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kForbidden);
  EXPECT_NE(error.what.find(options_.auth_file), std::string::npos);
  EXPECT_TRUE(Requests().empty());
}

TEST_F(RegistryTest, TlsWantsACaThatIsKnown) {
  const std::string ca = work_ / "ca.pem", key = work_ / "key.pem";
  ASSERT_EQ(Shell("openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=test -addext "
                  "subjectAltName=IP:127.0.0.1 -keyout " +
                  key + " -out " + ca + " 2>/dev/null"),
            0);
  StartServer(ca, key);
  const std::string a = Tar("a");
  Serve({a});
  Error error = Refused();
  EXPECT_EQ(error.code, Code::kUnavailable);
  EXPECT_NE(error.what.find("certificate"), std::string::npos) << error.what;
  options_.certs_dir = work_ / "certs";
  ASSERT_TRUE(MakeDirectories(options_.certs_dir + "/" + host_, 0700).has_value());
  ASSERT_EQ(Shell("cp " + ca + " " + options_.certs_dir + "/" + host_ + "/ca.crt"), 0);
  Pull();
  // Not even to a host that may be asked without TLS.
  Rules(R"([{"match":"manifests","location":"http://$OTHER/v2/test/image/manifests/v1"}])");
  error = Refused("test/image:v2");
  EXPECT_NE(error.what.find("without TLS: not followed"), std::string::npos) << error.what;
  for (const FakeRequest& request : Requests()) EXPECT_EQ(request.port, "registry");
}

TEST_F(RegistryTest, DocumentsThatAreTwoThingsAreRefused) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  layout.manifest = R"({"schemaVersion":2,"config":)" + DescriptorJson("x", "{}") +
                    R"(,"layers":[],"manifests":[]})";
  Serve(layout);
  EXPECT_EQ(Refused().code, Code::kInvalidArgument);
  layout.manifest.clear();
  Serve(layout);
  const std::string type = R"([{"match":"manifests","content_type":")";
  Rules(type + R"(application/vnd.oci.image.index.v1+json"}])");
  EXPECT_EQ(Refused().code, Code::kCorrupt);
  Rules(type + R"(text/html"}])");
  EXPECT_EQ(Refused().code, Code::kCorrupt);
  Rules(type + R"(application/vnd.docker.distribution.manifest.v1+prettyjws"}])");
  const Error error = Refused();
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_NE(error.what.find("schema 1"), std::string::npos);
  Rules(R"([{"match":"manifests","corrupt":true}])");
  EXPECT_EQ(Refused().code, Code::kInvalidArgument);  // no JSON any more
  EXPECT_EQ(Refused("test/image@" + DigestOf("nothing")).code, Code::kNotFound);
}

// digest_traversal_table: of a registry's own documents.
TEST_F(RegistryTest, digest_traversal_table_of_documents) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  for (const std::string digest :
       {"sha256:../../../../etc/passwd", "sha256:", "../x", "sha256:..%2f"}) {
    for (const std::string part : {"config", "layers"}) {
      const std::string bad = R"({"mediaType":"x","digest":")" + digest + R"(","size":1})";
      const std::string good = DescriptorJson("x", a);
      layout.manifest = R"({"schemaVersion":2,"config":)" + (part == "config" ? bad : good) +
                        R"(,"layers":[)" + (part == "layers" ? bad : good) + "]}";
      Serve(layout);
      EXPECT_EQ(Refused().code, Code::kInvalidArgument) << digest;
      EXPECT_TRUE(Requests("/blobs/").empty());
    }
  }
}

TEST_F(RegistryTest, SizesAreBoundedBeforeAByteIsAskedFor) {
  const std::string a = Tar("a");
  Layout layout;
  layout.layers = {{a, DigestOf(a)}};
  layout.config = R"({"os":"linux","rootfs":{"diff_ids":[")" + DigestOf(a) + R"("]}})";
  const auto manifest = [&](const std::string& config_size, const std::string& layer_size) {
    return R"({"schemaVersion":2,"config":{"digest":")" + DigestOf(layout.config) + R"(","size":)" +
           config_size + R"(},"layers":[{"digest":")" + DigestOf(a) + R"(","size":)" + layer_size +
           "}]}";
  };
  const std::string config_size = std::to_string(layout.config.size());
  layout.manifest = manifest(config_size, std::to_string(registry::kMaxDownloadBytes + 1));
  Serve(layout);
  EXPECT_EQ(Refused().code, Code::kTooLarge);
  layout.manifest = manifest(std::to_string(kMaxDocumentBytes + 1), "1");
  Serve(layout);
  EXPECT_EQ(Refused().code, Code::kTooLarge);
  layout.manifest = manifest(config_size, "0");
  Serve(layout);
  EXPECT_EQ(Refused().code, Code::kInvalidArgument);
  EXPECT_TRUE(RequestsOf(a).empty());
}

TEST_F(RegistryTest, AnswersAreBounded) {
  Serve({Tar("a")});
  Rules(R"([{"match":"manifests","body":"0123456789abcdef","repeat":600000}])");
  EXPECT_NE(Refused().what.find("more than " + std::to_string(kMaxDocumentBytes)),
            std::string::npos);
  Rules(R"([{"match":"manifests","headers":{"X":")" + std::string(registry::kMaxHeadBytes, 'x') +
        R"("}}])");
  EXPECT_NE(Refused().what.find("bytes of headers"), std::string::npos);
  Rules(R"([{"match":"manifests","status":404,"body":"{\"errors\":[{\"message\":\")" +
        std::string(2000, 'y') + R"(\"}]}"}])");
  const Error error = Refused();
  EXPECT_NE(error.what.find("yyy"), std::string::npos);
  EXPECT_LT(error.what.size(), registry::kMaxShownErrorBytes + 200);
  Rules(R"([{"match":"manifests","status":404,"body":"0123456789abcdef","repeat":600000}])");
  EXPECT_EQ(Refused().code, Code::kNotFound);
  Rules(R"([{"match":"/token","body":"0123456789abcdef","repeat":60000},)"
        R"({"match":"/v2/","want":"x","challenge":"Bearer realm=\"http://$HOST/token\""}])");
  EXPECT_NE(Refused().what.find("more than " + std::to_string(registry::kMaxTokenReplyBytes)),
            std::string::npos);
}

}  // namespace
}  // namespace hutch::rootfs
