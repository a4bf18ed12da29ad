#include "golden/content_hash.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <string_view>

#include "reference/spec/error.h"

namespace kvcheck {

struct Sha256::State {
  EVP_MD_CTX* context = nullptr;
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  state_->context = EVP_MD_CTX_new();
  KVCHECK_CHECK(
      state_->context != nullptr && EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1,
      "libcrypto has no SHA-256");
}

Sha256::~Sha256() { EVP_MD_CTX_free(state_->context); }

void Sha256::Update(const void* data, size_t size) {
  KVCHECK_CHECK(EVP_DigestUpdate(state_->context, data, size) == 1, "SHA-256 failed");
}

Sha256Digest Sha256::Finish() {
  Sha256Digest digest;
  unsigned int size = 0;
  KVCHECK_CHECK(EVP_DigestFinal_ex(state_->context, reinterpret_cast<unsigned char*>(digest.data()),
                                   &size) == 1 &&
                    size == digest.size(),
                "SHA-256 failed");
  return digest;
}

namespace {

void UpdateInteger(Sha256& hash, uint64_t value) {
  std::array<unsigned char, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(value >> (8 * i) & 0xff);
  }
  hash.Update(bytes.data(), bytes.size());
}

void UpdateText(Sha256& hash, std::string_view text) {
  UpdateInteger(hash, text.size());
  hash.Update(text.data(), text.size());
}

}  // namespace

std::string ContentHash(const FileIndex& index, const std::map<std::string, Sha256Digest>& data) {
  Sha256 hash;
  constexpr std::string_view kPreamble = "kvcheck golden 1\n";
  hash.Update(kPreamble.data(), kPreamble.size());
  for (const auto& [path, record] : index.objects) {
    hash.Update(record.is_dataset ? "D" : "G", 1);
    UpdateText(hash, path);
    const bool drop = path == "/" && record.attributes.contains("content_hash");
    UpdateInteger(hash, record.attributes.size() - (drop ? 1 : 0));
    for (const auto& [name, value] : record.attributes) {
      if (path == "/" && name == "content_hash") continue;
      UpdateText(hash, name);
      if (const auto* text = std::get_if<std::string>(&value)) {
        hash.Update("S", 1);
        UpdateText(hash, *text);
      } else {
        hash.Update("I", 1);
        UpdateInteger(hash, static_cast<uint64_t>(std::get<int64_t>(value)));
      }
    }
    if (!record.is_dataset) continue;
    UpdateInteger(hash, record.shape.axes.size());
    for (const Axis& axis : record.shape.axes) {
      UpdateInteger(hash, static_cast<uint64_t>(axis.extent));
    }
    const auto digest = data.find(path);
    KVCHECK_CHECK(digest != data.end(), "a dataset has no digest");
    hash.Update(digest->second.data(), digest->second.size());
  }
  std::string text = "sha256:";
  for (std::byte b : hash.Finish()) text += fmt::format("{:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace kvcheck
