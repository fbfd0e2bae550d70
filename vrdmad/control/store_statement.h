// What store.cc runs on the database.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "vrdmad/control/store.h"

namespace vrdma::vrdmad {

// One prepared statement, run once. Values are bound in the order of the calls.
class Store::Statement {
 public:
  Statement(Store& store, const char* sql) : store_(store) {
    code_ = ::sqlite3_prepare_v2(store.db_, sql, -1, &statement_, nullptr);
  }
  ~Statement() { ::sqlite3_finalize(statement_); }
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  Statement& text(const std::string& value) {
    return bound(::sqlite3_bind_text64(statement_, ++bound_, value.data(), value.size(),
                                       SQLITE_TRANSIENT, SQLITE_UTF8));
  }
  Statement& number(uint64_t value) {
    return bound(::sqlite3_bind_int64(statement_, ++bound_, static_cast<int64_t>(value)));
  }
  template <class Bytes>
  Statement& blob(const Bytes& bytes) {
    return bound(
        ::sqlite3_bind_blob64(statement_, ++bound_, bytes.data(), bytes.size(), SQLITE_TRANSIENT));
  }

  // True: there is a row; false: no more rows.
  base::Result<bool> step() {
    if (code_ == SQLITE_OK) code_ = ::sqlite3_step(statement_);
    const int code = std::exchange(code_, SQLITE_OK);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    return store_.failure();
  }
  base::Result<void> run() {
    auto stepped = step();
    if (!stepped) return base::pass(std::move(stepped).error());
    return {};
  }

  [[nodiscard]] std::string text_at(int column) const {
    const auto* bytes = ::sqlite3_column_text(statement_, column);
    return {reinterpret_cast<const char*>(bytes),
            static_cast<size_t>(::sqlite3_column_bytes(statement_, column))};
  }
  [[nodiscard]] uint64_t number_at(int column) const {
    return static_cast<uint64_t>(::sqlite3_column_int64(statement_, column));
  }
  template <class Bytes>
  [[nodiscard]] bool blob_at(int column, Bytes* bytes) const {
    const void* data = ::sqlite3_column_blob(statement_, column);
    if (data == nullptr ||
        static_cast<size_t>(::sqlite3_column_bytes(statement_, column)) != bytes->size())
      return false;
    std::memcpy(bytes->data(), data, bytes->size());
    return true;
  }

 private:
  Statement& bound(int code) {
    if (code_ == SQLITE_OK) code_ = code;
    return *this;
  }

  Store& store_;
  sqlite3_stmt* statement_ = nullptr;
  int code_ = SQLITE_OK;
  int bound_ = 0;
};

// Rolled back unless committed.
class Store::Transaction {
 public:
  explicit Transaction(Store& store) : store_(store) {}
  ~Transaction() {
    if (open_) ::sqlite3_exec(store_.db_, "ROLLBACK", nullptr, nullptr, nullptr);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  base::Result<void> begin() {
    auto begun = store_.execute("BEGIN IMMEDIATE");
    open_ = begun.has_value();
    return begun;
  }
  base::Result<void> commit() {
    auto done = store_.execute("COMMIT");
    if (done) open_ = false;
    if (done) ++store_.commits_;
    return done;
  }

 private:
  Store& store_;
  bool open_ = false;
};

}  // namespace vrdma::vrdmad
