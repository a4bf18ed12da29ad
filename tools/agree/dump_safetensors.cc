// Logits in a safetensors file: whole rows, or the most likely tokens and the log of the sum.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "golden/safetensors_file.h"
#include "reference/numerics/convert.h"
#include "reference/spec/error.h"
#include "tools/agree/logits_dump.h"
#include "tools/agree/measures.h"

namespace kvcheck {
namespace {

constexpr double kNoFloor = -std::numeric_limits<double>::infinity();

class SafetensorsLogits : public LogitsDump {
 public:
  explicit SafetensorsLogits(const std::string& path) : file_(path) {
    const auto& objects = file_.index().objects;
    const bool whole = objects.count("/logits") > 0;
    const ObjectRecord& rows = Matrix(whole ? "/logits" : "/topk_logits");
    positions_ = rows.shape.axes[0].extent;
    width_ = rows.shape.axes[1].extent;
    if (!whole) {
      Integers("/topk_ids", 2);
      if (!DatasetRecord(file_, "/topk_ids").shape.SameExtents(rows.shape)) {
        Refuse("topk_ids and topk_logits have other extents");
      }
      const ObjectRecord& lse = DatasetRecord(file_, "/lse");
      if (lse.shape.axes.size() != 1 || lse.shape.axes[0].extent != positions_ ||
          !IsReal(lse.dtype)) {
        Refuse("lse is one real number per position");
      }
    }
    if (objects.count("/next") > 0) {
      Integers("/next", 1);
      if (DatasetRecord(file_, "/next").shape.axes[0].extent != positions_) {
        Refuse("next is one token per position");
      }
      has_next_ = true;
    }
    whole_ = whole;
    ReadError();
  }

  bool Read(TokenDistribution* position) override {
    if (at_ == positions_) return false;
    position->complete = whole_;
    position->error = error_;
    position->floor = kNoFloor;
    std::vector<double>& log_p = position->log_p;
    log_p = Numbers(whole_ ? "/logits" : "/topk_logits", at_ * width_, width_);
    const double lse = whole_ ? LogSumExp(log_p) : Numbers("/lse", at_, 1).front();
    for (double& value : log_p) value -= lse;
    if (whole_) {
      position->tokens.clear();
    } else {
      position->tokens.resize(log_p.size());
      Sort(Numbers("/topk_ids", at_ * width_, width_), position);
    }
    position->next.reset();
    if (has_next_) {
      const auto next = static_cast<int64_t>(Numbers("/next", at_, 1).front());
      if (next >= 0) position->next = next;
    }
    ++at_;
    return true;
  }

  std::optional<int64_t> Positions() const override { return positions_; }
  void Skip(int64_t positions) override { at_ += positions; }

  std::string Description() const override {
    return fmt::format("safetensors, {} positions of {}{} tokens", positions_,
                       whole_ ? "" : "the most likely ", width_);
  }

 private:
  [[noreturn]] void Refuse(const std::string& what) const {
    throw Error(ErrorCode::kMissingData, what, file_.path());
  }
  static bool IsReal(DType dtype) {
    return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kFloat16 ||
           dtype == DType::kBFloat16;
  }
  const ObjectRecord& Matrix(const std::string& name) const {
    if (file_.index().objects.count(name) == 0) {
      Refuse("it has neither `logits` (positions, vocabulary) nor `topk_logits` (positions, k)");
    }
    const ObjectRecord& record = DatasetRecord(file_, name);
    if (record.shape.axes.size() != 2 || !IsReal(record.dtype) || record.shape.axes[1].extent < 1) {
      Refuse(fmt::format("{} is {} {}: a matrix of real numbers is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape)));
    }
    return record;
  }
  void Integers(const std::string& name, size_t rank) const {
    const ObjectRecord& record = DatasetRecord(file_, name);
    if (record.shape.axes.size() != rank ||
        (record.dtype != DType::kInt32 && record.dtype != DType::kInt64)) {
      Refuse(fmt::format("{} is {} {}: {} of i32 or i64 is asked for", name.substr(1),
                         Name(record.dtype), ToString(record.shape),
                         rank == 1 ? "a row" : "a matrix"));
    }
  }
  void ReadError() {
    const auto& attributes = file_.index().objects.at("/").attributes;
    const auto found = attributes.find("metadata.error");
    if (found == attributes.end()) return;
    const std::string* text = std::get_if<std::string>(&found->second);
    const char* end = text == nullptr ? nullptr : text->data() + text->size();
    if (text == nullptr || std::from_chars(text->data(), end, error_).ptr != end ||
        !(error_ >= 0) || !std::isfinite(error_)) {
      Refuse("its metadata `error` is no number from 0");
    }
  }
  std::vector<double> Numbers(const std::string& name, int64_t first, int64_t count) {
    const DType dtype = DatasetRecord(file_, name).dtype;
    const auto size = static_cast<size_t>(count);
    Tensor block(dtype, Shape::Unnamed({count}));
    file_.ReadElements(name, first, count, block.bytes.data());
    std::vector<double> values(size);
    DecodeTo(block, 0, values);
    return values;
  }
  void Sort(const std::vector<double>& ids, TokenDistribution* position) const {
    std::vector<size_t> order(ids.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a] < ids[b]; });
    const std::vector<double> unsorted = position->log_p;
    for (size_t i = 0; i < order.size(); ++i) {
      position->tokens[i] = static_cast<int64_t>(ids[order[i]]);
      position->log_p[i] = unsorted[order[i]];
      if (i > 0 && position->tokens[i] == position->tokens[i - 1]) {
        Refuse(fmt::format("position {} names token {} twice", at_, position->tokens[i]));
      }
    }
  }

  SafetensorsFile file_;
  int64_t positions_ = 0;
  int64_t width_ = 0;
  int64_t at_ = 0;
  bool whole_ = false;
  bool has_next_ = false;
  double error_ = 0;
};

}  // namespace

std::unique_ptr<LogitsDump> OpenSafetensorsLogits(const std::string& path) {
  return std::make_unique<SafetensorsLogits>(path);
}

}  // namespace kvcheck
