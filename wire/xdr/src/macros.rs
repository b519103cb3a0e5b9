//! Structures and enumerations whose two directions follow from their layout.

/// Defines a structure that is laid out field by field in the order given
/// (RFC 4506 section 4.14), with [`Encode`](crate::Encode) and
/// [`Decode`](crate::Decode).
#[macro_export]
macro_rules! xdr_struct {
    (
        $(#[$meta:meta])*
        pub struct $name:ident<$life:lifetime> {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name<$life> {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl<$life> $crate::Decode<$life> for $name<$life> {
            fn decode(decoder: &mut $crate::Decoder<$life>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: decoder.get()?,)* })
            }
        }

        impl $crate::Encode for $name<'_> {
            fn encode(&self, encoder: &mut $crate::Encoder) {
                $(encoder.put(&self.$field);)*
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $type:ty,)*
        }
    ) => {
        $(#[$meta])*
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl<'record> $crate::Decode<'record> for $name {
            fn decode(decoder: &mut $crate::Decoder<'record>) -> Result<Self, $crate::DecodeError> {
                Ok(Self { $($field: decoder.get()?,)* })
            }
        }

        impl $crate::Encode for $name {
            fn encode(&self, encoder: &mut $crate::Encoder) {
                $(encoder.put(&self.$field);)*
            }
        }
    };
}

/// Defines an enumeration (RFC 4506 section 4.3) with its numbers on the wire,
/// `ALL`, `number`, `from_number`, [`Encode`](crate::Encode) and
/// [`Decode`](crate::Decode).
///
/// The string is the name of the type in its RFC and appears in errors.
#[macro_export]
macro_rules! xdr_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident as $what:literal {
            $($(#[$variant_meta:meta])* $variant:ident = $number:literal,)*
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum $name {
            $($(#[$variant_meta])* $variant = $number,)*
        }

        impl $name {
            /// Every value, in the order of the numbers' definition.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The number on the wire.
            #[must_use]
            pub const fn number(self) -> u32 {
                self as u32
            }

            /// The value with this number on the wire, if there is one.
            #[must_use]
            pub const fn from_number(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$variant),)*
                    _ => None,
                }
            }
        }

        impl<'record> $crate::Decode<'record> for $name {
            #[inline]
            fn decode(decoder: &mut $crate::Decoder<'record>) -> Result<Self, $crate::DecodeError> {
                let value = decoder.u32()?;
                Self::from_number(value).ok_or($crate::DecodeError::Invalid { what: $what, value })
            }
        }

        impl $crate::Encode for $name {
            #[inline]
            fn encode(&self, encoder: &mut $crate::Encoder) {
                encoder.u32(self.number());
            }
        }
    };
}
