#include "reference/prefix/block_memory.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace kvcheck {

void BlockMemory::Begin(const PrefixSetup& setup, const PrefixStarted& started) {
  setup_ = setup;
  layout_.emplace(setup);
  block_tokens_ = started.block_tokens;
  requests_ = {};
  memory_.clear();
}

OpResult BlockMemory::Start(const PrefixSetup& setup, const std::string& folder,
                            PrefixStarted* started) {
  const OpResult result = manager_->Start(setup, folder, started);
  if (result.ok()) Begin(setup, *started);
  return result;
}

OpResult BlockMemory::Restart(const PrefixSetup& setup, bool orderly, PrefixStarted* started) {
  const OpResult result = manager_->Restart(setup, orderly, started);
  if (result.ok()) Begin(setup, *started);
  return result;
}

std::byte* BlockMemory::TokenAt(int64_t block, int64_t index) {
  std::vector<std::byte>& rows = memory_[block];
  const int64_t bytes = layout_->TokenBytes();
  if (rows.empty()) rows.assign(static_cast<size_t>(block_tokens_ * bytes), std::byte{0xff});
  return rows.data() + index * bytes;
}

void BlockMemory::Show(Request* request, PrefixRows* rows) {
  request->blocks.assign(rows->blocks.begin(), rows->blocks.end());
  const int64_t tokens = request->tokens;
  const auto vectors = static_cast<size_t>(tokens * layout_->layers * layout_->heads);
  // What no id stands for was never written.
  k_.assign(vectors * static_cast<size_t>(layout_->k_bytes), std::byte{0xff});
  v_.assign(vectors * static_cast<size_t>(layout_->v_bytes), std::byte{0xff});
  rows->vectors = DenseVectors(setup_, tokens, k_.data(), v_.data());
  for (int64_t token = 0; token < tokens; ++token) {
    const auto at = static_cast<size_t>(token / block_tokens_);
    if (at >= request->blocks.size() || request->blocks[at] < 0) continue;
    const std::byte* from = TokenAt(request->blocks[at], token % block_tokens_);
    for (int64_t layer = 0; layer < layout_->layers; ++layer) {
      for (int64_t head = 0; head < layout_->heads; ++head) {
        std::memcpy(k_.data() + (rows->vectors.K(layer, head, token) - rows->vectors.k),
                    from + layout_->Offset(layer, head, TokenPart::kKey),
                    static_cast<size_t>(layout_->k_bytes));
        std::memcpy(v_.data() + (rows->vectors.V(layer, head, token) - rows->vectors.v),
                    from + layout_->Offset(layer, head, TokenPart::kValue),
                    static_cast<size_t>(layout_->v_bytes));
      }
    }
  }
  rows->blocks = request->blocks;
}

OpResult BlockMemory::Open(int request, std::span<const int32_t> prompt, const PrefixIdentity& who,
                           bool all, PrefixHit* hit) {
  const OpResult result = manager_->Open(request, prompt, who, all, hit);
  if (!result.ok()) return result;
  Request& open = requests_[static_cast<size_t>(request)];
  open = Request();
  open.tokens = std::clamp<int64_t>(hit->tokens, 0, std::ssize(prompt));
  Show(&open, &hit->rows);
  return result;
}

OpResult BlockMemory::Read(int request, PrefixRows* rows) {
  const OpResult result = manager_->Read(request, rows);
  if (result.ok()) Show(&requests_[static_cast<size_t>(request)], rows);
  return result;
}

OpResult BlockMemory::Write(int request, std::span<const int32_t> tokens,
                            const PrefixVectors& vectors, bool* full) {
  // Nobody else looks at the vectors: a manager has none.
  const bool fits = vectors.dtype == setup_.x && vectors.layers == setup_.layers &&
                    vectors.kv_heads == setup_.kv_heads && vectors.k_dim == setup_.k_dim &&
                    vectors.v_dim == setup_.v_dim && vectors.tokens == std::ssize(tokens);
  if (!fits) return OpResult::Refuse("vectors of another shape or type");
  const OpResult result = manager_->Write(request, tokens, vectors, full);
  if (!result.ok() || *full) return result;
  Request& open = requests_[static_cast<size_t>(request)];
  PrefixRows rows;
  const OpResult read = manager_->Read(request, &rows);
  if (!read.ok()) return read;
  const std::vector<int64_t> before = std::exchange(open.blocks, {});
  open.blocks.assign(rows.blocks.begin(), rows.blocks.end());
  // A block that has changed in place of a shared one has what that had.
  for (size_t i = 0; i < std::min(before.size(), open.blocks.size()); ++i) {
    if (before[i] == open.blocks[i] || before[i] < 0 || open.blocks[i] < 0) continue;
    TokenAt(before[i], 0);
    memory_[open.blocks[i]] = memory_[before[i]];
  }
  for (int64_t i = 0; i < std::ssize(tokens); ++i) {
    const int64_t token = open.tokens + i;
    const auto at = static_cast<size_t>(token / block_tokens_);
    if (at >= open.blocks.size() || open.blocks[at] < 0) continue;
    std::byte* to = TokenAt(open.blocks[at], token % block_tokens_);
    for (int64_t layer = 0; layer < layout_->layers; ++layer) {
      for (int64_t head = 0; head < layout_->heads; ++head) {
        for (const TokenPart part : {TokenPart::kKey, TokenPart::kValue}) {
          std::memcpy(to + layout_->Offset(layer, head, part),
                      VectorAt(vectors, layer, head, i, part),
                      static_cast<size_t>(layout_->VectorBytes(part)));
        }
      }
    }
  }
  open.tokens += std::ssize(tokens);
  return result;
}

OpResult BlockMemory::Fork(int request, int out) {
  const OpResult result = manager_->Fork(request, out);
  if (result.ok()) {
    requests_[static_cast<size_t>(out)] = requests_[static_cast<size_t>(request)];
  }
  return result;
}

OpResult BlockMemory::TrimTo(int request, int64_t tokens) {
  const OpResult result = manager_->TrimTo(request, tokens);
  if (result.ok()) requests_[static_cast<size_t>(request)].tokens = tokens;
  return result;
}

}  // namespace kvcheck
